"""Arguments of vLLM's engine: `model.json` of its Triton model, options of vLLM's own server."""

import json
from collections.abc import Mapping
from typing import Any

import yaml

from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Facts
from specdec.backends.vllm import limits, methods
from specdec.servers.vllm_engine import counts_by_request

_DTYPES = {"Auto": "auto", "Float32": "float32", "Float16": "float16", "BFloat16": "bfloat16"}


def arguments(model: SpeculativeModel, facts: Facts, token_bytes: int | None) -> dict[str, Any]:
    """Arguments of `AsyncEngineArgs` by name.

    The size of blocks is left out: vLLM chooses it for its attention, and draft and target have to
    agree.

    Args:
        model: the resource, with all limits.
        facts: its checkpoints, and the cache of the memory plan.
        token_bytes: bytes of a token in the caches of one GPU; None if they are not known.

    Raises:
        ValueError: a field cannot be written.
    """
    spec, runtime = model.spec.target, model.spec.runtime
    speculative = methods.of(model).speculative_config(model, facts)
    return {
        # Ours come later and win.
        **dict(sorted(runtime.arguments.items())),
        "model": facts.checkpoints["target"].path,
        "dtype": _DTYPES[spec.dtype],
        "tensor_parallel_size": spec.parallelism.tensor,
        "pipeline_parallel_size": spec.parallelism.pipeline,
        "max_num_seqs": spec.limits.max_batch_size,
        "max_model_len": spec.limits.max_seq_len,
        "max_num_batched_tokens": spec.limits.max_num_tokens,
        "enable_chunked_prefill": limits.splits_prompts(model),
        "enable_prefix_caching": spec.kv_cache.reuse,
        **_cache(model, facts, token_bytes),
        **({"speculative_config": speculative} if speculative else {}),
    }


def text(values: Mapping[str, Any]) -> str:
    """The text of `model.json`."""
    return json.dumps(values, indent=2) + "\n"


def options(values: Mapping[str, Any], version: str) -> str:
    """The file for `--config` of vLLM's own server; its keys are flags without their dashes.

    Answers get the counts of their draft tokens, which vLLM refuses without drafts.

    The server ignores false: it takes the flag with `no-` in its place. It would read null as a
    text.
    """
    counts: dict[str, Any] = {}
    if "speculative_config" in values and counts_by_request(version):
        counts = {"per_request_spec_decode_metrics": "summary"}
    flags: dict[str, Any] = {}
    for name, value in {**values, **counts}.items():
        flag = name.replace("_", "-")
        if value is False:
            flags[f"no-{flag}"] = True
        elif value is not None:
            flags[flag] = value
    return yaml.safe_dump(flags, sort_keys=False, allow_unicode=False)


def _cache(model: SpeculativeModel, facts: Facts, token_bytes: int | None) -> dict[str, Any]:
    """The key/value cache: the spec's size, else that of the memory plan, else vLLM's own.

    vLLM takes a percentage of all memory, so the plan's tokens state better what a percentage of
    the free memory is.
    """
    own = model.spec.target.kv_cache
    values: dict[str, Any] = {}
    if model.spec.target.quantization.kv_cache == "FP8":
        values["kv_cache_dtype"] = "fp8"
    tokens = own.max_tokens
    if tokens is not None and token_bytes is None:
        raise ValueError(
            f"spec.target.kvCache.maxTokens is {tokens}, and vLLM takes the size of a cache in "
            "bytes, which do not follow from these checkpoints: set kvCache.memoryPercent in its "
            "place"
        )
    tokens = facts.kv_tokens.get("target") if tokens is None else tokens
    if tokens and token_bytes:
        values["kv_cache_memory_bytes"] = tokens * token_bytes
    elif own.memory_percent is not None:
        values["gpu_memory_utilization"] = own.memory_percent / 100
    return values
