# A CPU tritonserver with Python for vLLM, for tests and the demo only. The packages are a volume at
# /opt/vllm: they have 2.6 GB, and are a build by a third party, which no image contains.
FROM ghcr.io/specdec/reference:0.1.0 AS vllm
LABEL org.opencontainers.image.title="Triton for vLLM on CPUs, for tests only"
USER 0:0
RUN apt-get update \
 && apt-get install --yes --no-install-recommends libnuma1 \
 && rm -rf /var/lib/apt/lists/*
# Python models import the packages of the first interpreter on PATH, which the launcher sets.
RUN python3 -m venv --without-pip /opt/python \
 && rmdir /opt/python/lib/python3.11/site-packages \
 && ln -s /opt/vllm /opt/python/lib/python3.11/site-packages \
 && sed -i 's|^export PATH=.*|export PATH=/opt/python/bin:"$PATH"|' /opt/tritonserver/bin/tritonserver \
 && grep -q '^export PATH=/opt/python/bin' /opt/tritonserver/bin/tritonserver
# By default vLLM binds a thread to each core, which then spins: a factor of ten beside other pods.
# Without multiprocessing, the engine is its own worker, and not one more process that imports vLLM.
ENV PATH=/opt/python/bin:$PATH \
    OMP_NUM_THREADS=1 \
    TOKENIZERS_PARALLELISM=false \
    TORCHINDUCTOR_CACHE_DIR=/tmp/inductor \
    VLLM_CPU_OMP_THREADS_BIND=nobind \
    VLLM_ENABLE_V1_MULTIPROCESSING=0
USER 10001:10001
