"""The modules of the Triton model that runs vLLM; `model.py` beside this package uses them."""
