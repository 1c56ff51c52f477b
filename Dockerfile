# Two images from one file:
#   operator   the operator and its own Jobs: fetch, publish, verify, benchmark; the tiny model pair
#   reference  a CPU tritonserver with the Reference backend
# docker build --target operator -t specdec/operator .
# `make pin` writes the digests of the base images; a release without them is refused.

FROM python:3.11-slim-bookworm AS base
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore \
    PYTHONUNBUFFERED=1
RUN groupadd --gid 10001 specdec \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent \
            --shell /usr/sbin/nologin specdec
# The base image has no compiled modules, and the root file system of a pod is read-only. So each
# probe would compile what it imports: about 290 ms of processor time in place of 80.
RUN python3 -m compileall -q "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"

FROM rust:1.95.0-slim-bookworm AS library
WORKDIR /build
COPY operator/bls ./
# The image has the compiler of rust-toolchain.toml and nothing else to install.
ENV RUSTUP_TOOLCHAIN=1.95.0
# The digest is that of `tests/support/bls.py`: what the operator names has to be what its Jobs publish.
RUN cargo build --release --locked \
 && cp target/release/libtriton_specdec.so / \
 && find Cargo.toml Cargo.lock specdec-bls triton triton-sys -type f \( -name Cargo.toml \
    -o -name Cargo.lock -o -path '*/src/*' \) | LC_ALL=C sort | xargs sha256sum | sha256sum \
    | cut -d' ' -f1 > /libtriton_specdec.source

FROM base AS operator
WORKDIR /build
# Packages first, by the digests of their files: their layer changes with the lock alone.
COPY requirements-operator.txt ./
RUN pip install --require-hashes --only-binary :all: -r requirements-operator.txt
# For servers and builds in NVIDIA's images, whose Python is newer: so nothing is compiled here.
COPY requirements-packages.txt ./
RUN pip install --require-hashes --only-binary :all: --no-deps --no-compile \
                --target /opt/specdec/packages -r requirements-packages.txt
# For manifests/samples/reference-pair.yaml: the heads are for backends that need a GPU.
COPY operator/specdec/images/pair/target /opt/specdec/pair/target
COPY operator/specdec/images/pair/draft /opt/specdec/pair/draft
COPY operator/specdec/images/pair/eagle3 /opt/specdec/pair/eagle3
COPY pyproject.toml hatch_build.py README.md ./
COPY operator operator
COPY --from=library /libtriton_specdec.so /libtriton_specdec.source \
     operator/specdec/images/models/tensorrt_llm_bls/
RUN pip install --no-index --no-deps --no-build-isolation . \
 && rm -rf /build/*
WORKDIR /
USER 10001:10001
EXPOSE 8080 9090
CMD ["python", "-m", "specdec.controller", "--log-format=json"]

FROM base AS reference
WORKDIR /build
COPY requirements-reference.txt ./
RUN pip install --require-hashes --only-binary :all: -r requirements-reference.txt
# The server alone first, with an empty backend folder beside it: it is large and seldom changes.
COPY operator/specdec/images/backend/install.py layout/install.py
RUN mkdir layout/tensorrtllm \
 && python3 layout/install.py --source download --dest /opt/tritonserver \
 && rm -rf /opt/wheels /build/layout
COPY operator/specdec/images/backend/tensorrtllm /opt/tritonserver/backends/tensorrtllm
# The stand-in of the LLM API converts checkpoints when it loads, and reads text.
COPY operator/specdec/images/build /opt/tritonserver/backends/tensorrtllm/build
COPY operator/specdec/images/models/shared /opt/tritonserver/backends/tensorrtllm/text
# Compiled here: the root file system of a pod is read-only, so a start could not keep it.
RUN python3 -m compileall -q /opt/tritonserver/backends/tensorrtllm
WORKDIR /
ENV PATH=/opt/tritonserver/bin:$PATH
USER 10001:10001
EXPOSE 8000 8001 8002
CMD ["tritonserver", "--help"]
