"""Certify a cluster: serve a matrix of small models, and report what passed and what failed.

`specdec certify` calls it. `matrix` decides what to try, `judgement` what passed; both are pure.
Only `live` changes the cluster, with the rights of the caller's kubeconfig, and only `folder`
writes files.
"""
