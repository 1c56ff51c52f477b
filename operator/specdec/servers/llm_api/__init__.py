"""tritonserver with one model, which runs the LLM API of TensorRT-LLM."""
