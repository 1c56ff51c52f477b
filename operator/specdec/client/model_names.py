"""The Triton names of the models on a server that the operator runs.

All clients use these names as defaults; they are the names of the TensorRT-LLM backend's guides.
"""

BLS = "tensorrt_llm_bls"
ENSEMBLE = "ensemble"
TARGET = "tensorrt_llm"
DRAFT = "tensorrt_llm_draft"
PREPROCESSING = "preprocessing"
POSTPROCESSING = "postprocessing"
