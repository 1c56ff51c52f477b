"""The Reference engine: Llama inference in NumPy, which the Triton model `model.py` serves."""
