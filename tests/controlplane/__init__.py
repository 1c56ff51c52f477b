"""Tests of the operator and its CustomResourceDefinition on a real API server."""
