"""A stand-in for TensorRT-LLM's LLM API on CPUs, around the Reference engine."""
