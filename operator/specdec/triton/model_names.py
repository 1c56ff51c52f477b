"""The Triton names of the models on a server that the operator runs.

They are the names of the guides of NVIDIA's backends. Renderers write them, and clients use them
as defaults.
"""

BLS = "tensorrt_llm_bls"
ENSEMBLE = "ensemble"
TARGET = "tensorrt_llm"
DRAFT = "tensorrt_llm_draft"
PREPROCESSING = "preprocessing"
POSTPROCESSING = "postprocessing"
# The name in the guide of NVIDIA's vLLM backend.
VLLM = "vllm_model"
