"""One model, target or draft: where it comes from, how its engine is built and where it runs."""

from typing import Literal

from pydantic import Field

from specdec.api.source import Source
from specdec.api.value import Value

Dtype = Literal["Auto", "Float32", "Float16", "BFloat16"]
QuantizationMethod = Literal["None", "FP8", "INT8SQ", "INT4AWQ", "W4A8AWQ", "NVFP4"]


class Parallelism(Value):
    """How one engine is split over GPUs."""

    tensor: int = 1
    pipeline: int = 1


class GpuClass(Value):
    """The GPU that engines are built and served on.

    `product` is the value of the node label `nvidia.com/gpu.product`; memory and compute
    capability ("8.9") are known for common products, and given here for any other.
    """

    product: str | None = None
    memory_mi_b: int | None = None
    compute_capability: str | None = None


class OwnGpu(GpuClass):
    """The GPU of one server alone."""

    product: str


class OwnServer(Value):
    """What differs between the server of a role and the target's; None means the same value."""

    replicas: int | None = None
    gpu: OwnGpu | None = None


class Devices(Value):
    """GPU ordinals inside the pod; if empty, the operator chooses them."""

    device_ids: tuple[int, ...] = ()


class Limits(Value):
    """Limits that are built into an engine, in requests and tokens."""

    max_batch_size: int = 8
    max_input_len: int = 1024
    max_seq_len: int = 2048
    max_num_tokens: int = 8192


class KvCache(Value):
    """Run-time budget of the key/value cache; `hostMemoryMiB` is for blocks moved to the host."""

    max_tokens: int | None = None
    memory_percent: int | None = None
    reuse: bool = True
    host_memory_mi_b: int | None = None


class Calibration(Value):
    """Calibration data of post-training quantization: a data set's directory and sample count."""

    dataset: str | None = None
    samples: int = 512


class Quantization(Value):
    """The number format of weights and activations, and that of the key/value cache."""

    method: QuantizationMethod = "None"
    kv_cache: Literal["Auto", "FP8", "INT8"] = "Auto"
    calibration: Calibration = Calibration()


class Plugins(Value):
    """Values of the build flags of TensorRT-LLM plugins; None means the default of the release.

    The guides of TensorRT-LLM set `gemm` to the model's number format; auto means the same.
    """

    gemm: str = "auto"
    gpt_attention: str | None = None
    low_latency_gemm: str | None = None


class EngineOptions(Value):
    """Options of `trtllm-build` beside the limits; `extraArgs` is flag name -> value."""

    paged_context_fmha: bool = True
    fp8_context_fmha: bool = False
    plugins: Plugins = Plugins()
    workers: int | None = None
    extra_args: dict[str, str] = Field(default_factory=dict)
    prebuilt: Source | None = None


class ModelSpec(Value):
    """One model, target or draft."""

    source: Source
    dtype: Dtype = "Auto"
    quantization: Quantization = Quantization()
    parallelism: Parallelism = Parallelism()
    gpu: Devices = Devices()
    limits: Limits = Limits()
    engine: EngineOptions = EngineOptions()
    kv_cache: KvCache = KvCache()
