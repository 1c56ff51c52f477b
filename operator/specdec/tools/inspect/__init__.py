"""Read resources in a running cluster, for commands such as `specdec status` (extra `client`).

All requests use the rights of the caller's kubeconfig. Only `actions`, `job_run` and `prune`
write. Python programs may call these modules as well; docs/python-api.md lists what is stable.
"""
