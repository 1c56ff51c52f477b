"""A real CPU tritonserver under generated repositories."""
