"""The Reference engine: Llama in NumPy, with everything the Triton backend beside it serves."""
