"""Tests on a real vLLM for CPUs (`make vllm`). They are skipped where it is not installed."""
