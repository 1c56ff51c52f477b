"""Defaults of the spec that Jobs know without loading its types."""

# Requests that may wait for a model.
MAX_QUEUE_SIZE = 1000
