"""Trains the tiny target and draft that the Reference image ships; see `--help`."""
