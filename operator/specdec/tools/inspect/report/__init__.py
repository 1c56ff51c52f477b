"""Collect what a maintainer needs to explain a resource, for `specdec report`.

`reading` reads the cluster, `masking` removes credentials, and `packing` names the files.
"""
