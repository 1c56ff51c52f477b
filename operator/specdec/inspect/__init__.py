"""Read resources in a running cluster, for commands such as `specdec status` (extra `client`).

Everything here only reads, with the rights of the caller's kubeconfig. Python programs may call it
as well; docs/python-api.md lists what is stable.
"""
