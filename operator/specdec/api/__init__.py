"""The resource as typed values: spec, conditions, names and the support matrix."""
