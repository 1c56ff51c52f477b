"""Triton names of the models that a server of the operator has."""

BLS = "tensorrt_llm_bls"
ENSEMBLE = "ensemble"
TARGET = "tensorrt_llm"
DRAFT = "tensorrt_llm_draft"
PREPROCESSING = "preprocessing"
POSTPROCESSING = "postprocessing"
