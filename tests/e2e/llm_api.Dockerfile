# A simulation of TensorRT-LLM's image for Triton, for tests of backend PyTorch on a node without GPUs.
# The stand-in for CPUs is where NVIDIA's images have the program of the LLM API, and nowhere else.
FROM ghcr.io/specdec/reference:0.1.0 AS llm-api
LABEL org.opencontainers.image.title="Simulation of TensorRT-LLM for Triton on CPUs, for tests only"
USER 0:0
WORKDIR /opt/tritonserver/backends/tensorrtllm
RUN mv llm_api simulation \
 && mkdir -p /app/all_models/llmapi/tensorrt_llm/1 \
 && ln -s "$PWD/simulation/model.py" /app/all_models/llmapi/tensorrt_llm/1/model.py
WORKDIR /
USER 10001:10001
