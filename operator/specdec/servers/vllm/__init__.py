"""tritonserver with one model, which runs vLLM's engine."""
