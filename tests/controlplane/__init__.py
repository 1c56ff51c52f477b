"""The operator and its definition on a real API server."""
