"""A toy server, whose API is neither Triton's nor OpenAI's."""
