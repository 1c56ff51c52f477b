"""Tests of generated repositories on a real tritonserver for CPUs."""
