"""The blocks of `spec.speculation`, one file for each method."""
