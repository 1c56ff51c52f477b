"""Checks whether the tree can be released: `python -m release`, or `make release-check`."""
