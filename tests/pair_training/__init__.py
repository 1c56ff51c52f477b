"""Trains the tiny target and draft that the operator's image ships; see `--help`."""
