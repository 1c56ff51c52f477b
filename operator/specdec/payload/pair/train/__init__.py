"""Trains the tiny target and draft that the Reference image ships; run `python -m` with `--help`."""
