"""The plan of a TensorRT-LLM build: parsed and checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from failure import BuildError

MODES = (
    "none",
    "draft_tokens_external",
    "eagle",
    "medusa",
    "explicit_draft_tokens",
    "lookahead_decoding",
)
# The block of the plan that a mode needs.
_BLOCKS = {
    "eagle": "eagle",
    "medusa": "medusa",
    "explicit_draft_tokens": "reDrafter",
    "lookahead_decoding": "lookahead",
}
_HEADS = ("eagle", "medusa", "explicit_draft_tokens")
_DTYPES = ("auto", "float32", "float16", "bfloat16")
_QUANTIZATIONS = ("None", "FP8", "INT8SQ", "INT4AWQ", "W4A8AWQ", "NVFP4")
_CACHES = ("Auto", "FP8", "INT8")
# Weight formats whose attention can compute in FP8.
_FP8_ATTENTION = ("FP8", "W4A8AWQ", "NVFP4")
_SEVERITIES = ("Enforce", "Warn", "Disabled")
_FLAG = re.compile(r"[a-z][a-z0-9_]{0,63}")
# Nodes of the default tree (mc_sim_7b_63), which the converters assume as well.
_TREE = 63


@dataclass(frozen=True)
class Quantization:
    """Post-training quantization; `method` None keeps the weights' precision."""

    method: str
    kv_cache: str
    dataset: str | None
    samples: int


@dataclass(frozen=True)
class Options:
    """Options of `trtllm-build` beside its shapes; None leaves the release's default."""

    paged_context_fmha: bool
    fp8_context_fmha: bool
    gemm: str | None
    gpt_attention: str | None
    low_latency_gemm: str | None
    workers: int
    gather_generation_logits: bool
    extra: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class EnginePlan:
    """One engine. `limits` are in tokens, except `maxBatchSize` in sequences.

    `max_draft_len` is in tokens (0 without speculation); `block` holds the numbers of the method.
    `examples` are the folders that may hold the image's scripts; `image_check` is the severity of
    differences between the image and its release.
    """

    checkpoint: Path
    heads: Path | None
    output: Path
    examples: tuple[Path, ...]
    key: str
    role: str
    version: str
    dtype: str
    mode: str
    tensor: int
    pipeline: int
    limits: Mapping[str, int]
    max_draft_len: int
    block: Mapping[str, Any]
    quantization: Quantization
    options: Options
    image_check: str = "Enforce"

    @property
    def world(self) -> int:
        """Ranks of the engine, each in a file of its own."""
        return self.tensor * self.pipeline


def read(data: Mapping[str, Any]) -> EnginePlan:
    """Check a plan and set the defaults of missing fields.

    Raises:
        BuildError: a field is missing or has a value that this build does not support.
    """
    try:
        plan = _read(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BuildError(
            "PlanInvalid", f"the build plan is not usable ({type(error).__name__}: {error})"
        ) from error
    _refuse(plan)
    return plan


def _read(data: Mapping[str, Any]) -> EnginePlan:
    mode = _one_of(data, "speculativeDecodingMode", MODES, "none")
    block = dict(data[_BLOCKS[mode]]) if mode in _BLOCKS else {}
    heads = data.get("heads")
    tensor = _positive(data, "tensorParallel", 1)
    pipeline = _positive(data, "pipelineParallel", 1)
    quantization = _quantization(data.get("quantization") or {})
    names = ("maxBatchSize", "maxInputLen", "maxSeqLen", "maxNumTokens")
    return EnginePlan(
        checkpoint=Path(data["checkpoint"]),
        heads=Path(heads) if heads else None,
        output=Path(data["output"]),
        examples=tuple(Path(folder) for folder in _list(data, "examples")),
        key=str(data["key"]),
        role=str(data.get("role", "target")),
        version=str(data["version"]),
        dtype=_one_of(data, "dtype", _DTYPES, "auto"),
        mode=mode,
        tensor=tensor,
        pipeline=pipeline,
        limits={name: _positive(data["limits"], name) for name in names},
        max_draft_len=_draft_length(mode, block, int(data.get("maxDraftTokens") or 0)),
        block=block,
        quantization=quantization,
        options=_options(data.get("engine") or {}, quantization, tensor * pipeline),
        image_check=_one_of(data, "imageCheck", _SEVERITIES, "Enforce"),
    )


def _quantization(data: Mapping[str, Any]) -> Quantization:
    calibration = data.get("calibration") or {}
    dataset = calibration.get("dataset")
    if dataset is not None and not str(dataset).startswith("/"):
        # The release's scripts load it with trust_remote_code=True; no variable turns that off.
        raise BuildError(
            "PlanInvalid",
            f"quantization.calibration.dataset is {dataset!r}, an id on a hub, whose data sets "
            "can bring code that the build would run: download it and name its directory",
        )
    return Quantization(
        method=_one_of(data, "method", _QUANTIZATIONS, "None"),
        kv_cache=_one_of(data, "kvCache", _CACHES, "Auto"),
        dataset=dataset,
        samples=_positive(calibration, "samples", 512),
    )


def _options(data: Mapping[str, Any], quantization: Quantization, world: int) -> Options:
    plugins = data.get("plugins") or {}
    # A quantizing Job holds a GPU for every rank, so its ranks are built side by side as well.
    workers = data.get("workers") or (1 if quantization.method == "None" else world)
    return Options(
        paged_context_fmha=bool(data.get("pagedContextFmha", True)),
        fp8_context_fmha=bool(data.get("fp8ContextFmha", False)),
        gemm=plugins.get("gemm"),
        gpt_attention=plugins.get("gptAttention"),
        low_latency_gemm=plugins.get("lowLatencyGemm"),
        workers=min(int(workers), world),
        gather_generation_logits=bool(data.get("gatherGenerationLogits", False)),
        extra=tuple(sorted((str(k), str(v)) for k, v in (data.get("extraArgs") or {}).items())),
    )


def _draft_length(mode: str, block: Mapping[str, Any], planned: int) -> int:
    """The longest draft (tokens) of one step.

    Lookahead decoding (Fu et al., 2024): a window of W columns and N - 1 rows beside G n-grams.
    """
    if mode == "lookahead_decoding":
        window, ngram, guesses = (
            int(block[name]) for name in ("windowSize", "ngramSize", "verificationSetSize")
        )
        return max(0, ngram - 2) + (window - 1 + guesses) * (ngram - 1)
    if mode == "explicit_draft_tokens":
        return int(block["numBeams"]) * int(block["draftLenPerBeam"])
    if mode in _HEADS:
        return planned or _TREE
    return planned if mode == "draft_tokens_external" else 0


def _refuse(plan: EnginePlan) -> None:
    """Refuse what the converters cannot do, before hours of GPU time go into it."""
    if (plan.mode in _HEADS) != (plan.heads is not None):
        raise _invalid(f"heads: mode {plan.mode} and heads {plan.heads} do not go together")
    if plan.mode == "draft_tokens_external" and plan.max_draft_len < 1:
        raise _invalid("maxDraftTokens: a target that verifies draft tokens needs at least 1")
    if plan.mode in ("eagle", "explicit_draft_tokens") and plan.pipeline > 1:
        raise _invalid(
            f"pipelineParallel: {plan.pipeline} must be 1 with {plan.mode}; use tensorParallel"
        )
    if plan.mode == "eagle" and not plan.options.paged_context_fmha:
        raise _invalid("engine.pagedContextFmha: an EAGLE engine needs it; set it to true")
    quantization = plan.quantization
    if plan.mode == "eagle" and (quantization.method, quantization.kv_cache) != ("None", "Auto"):
        raise _invalid(
            "quantization: the EAGLE converter has none; leave quantization out, or use a "
            "prebuilt engine"
        )
    if quantization.method == "None" and quantization.kv_cache == "FP8":
        raise _invalid(
            "quantization.kvCache: an FP8 cache comes with quantized weights only; set "
            "quantization.method too"
        )
    _refuse_formats(plan)
    for name, value in plan.options.extra:
        if not _FLAG.fullmatch(name):
            raise _invalid(f"engine.extraArgs: {name!r:.80} is not a flag's name")
        if "\0" in value:
            raise _invalid(f"engine.extraArgs.{name}: a value cannot hold a NUL character")


def _refuse_formats(plan: EnginePlan) -> None:
    """Refuse options that `trtllm-build` would turn off with no more than a log line."""
    quantization, options = plan.quantization, plan.options
    weights, cache = quantization.method, quantization.kv_cache
    fp8 = weights in _FP8_ATTENTION
    if options.paged_context_fmha and (cache == "INT8" or (cache == "FP8" and not fp8)):
        raise _invalid(
            f"quantization.kvCache: {cache} beside method {weights} cannot be read by paged "
            "context attention; set it to Auto, or engine.pagedContextFmha to false"
        )
    if options.fp8_context_fmha and not (
        fp8 and (cache == "FP8" or not options.paged_context_fmha)
    ):
        raise _invalid(
            f"engine.fp8ContextFmha: needs FP8 scales and an FP8 cache, not {weights} and "
            f"{cache}; set both to FP8, or leave it out"
        )


def _one_of(data: Mapping[str, Any], key: str, allowed: tuple[str, ...], default: str) -> str:
    value = data.get(key) or default
    if value not in allowed:
        raise _invalid(f"{key}: {value!r} must be one of {', '.join(allowed)}")
    return str(value)


def _positive(data: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = int(data[key] if default is None else data.get(key) or default)
    if value < 1:
        raise _invalid(f"{key}: {value} must be at least 1")
    return value


def _list(data: Mapping[str, Any], key: str) -> list[Any]:
    if not isinstance(data[key], list) or not data[key]:
        raise _invalid(f"{key}: {data[key]!r:.80} must be a list with at least one item")
    return list(data[key])


def _invalid(message: str) -> BuildError:
    return BuildError("PlanInvalid", message)
