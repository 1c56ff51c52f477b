"""Arguments of the LLM API: `model.yaml` of its Triton model, options of `trtllm-serve`."""

from collections.abc import Mapping
from typing import Any

import yaml

from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Facts
from specdec.backends.pytorch import generations, methods

_POLICIES = {
    "GuaranteedNoEvict": "GUARANTEED_NO_EVICT",
    "MaxUtilization": "MAX_UTILIZATION",
}
_DTYPES = {"Auto": "auto", "Float16": "float16", "BFloat16": "bfloat16"}
_MIB = 1 << 20
# Milliseconds between two checks for clients that have left; the default of the model.
_CANCELLATION_MS = 100
# Names of spec.runtime.parameters: each is an argument of the LLM API.
ADAPTERS = "enable_lora"
_SWITCHES = {"true": True, "false": False}


def has_adapters(parameters: Mapping[str, str]) -> bool:
    """Whether `spec.runtime.parameters` turns on adapters (LoRA)."""
    return _SWITCHES.get(parameters.get(ADAPTERS, ""), False)


def text(model: SpeculativeModel, facts: Facts) -> str:
    """The text of `model.yaml`, with `triton_config` for the Triton model.

    Batches are made by the LLM API, so `max_batch_size` of `triton_config` is 0.
    """
    arguments = {
        "model": facts.checkpoints["target"].path,
        "backend": "pytorch",
        **_arguments(model, facts),
        "triton_config": {
            "max_batch_size": 0,
            "decoupled": model.spec.serving.streaming,
            "cancellation_check_period_ms": _CANCELLATION_MS,
        },
    }
    return _dump(arguments)


def options(model: SpeculativeModel, facts: Facts) -> str:
    """The options file of `trtllm-serve`, whose command line has the model and the backend.

    A comment in the file names the checkpoint, because the publish Job compares the checkpoints
    that files name.
    """
    head = f"# Options of trtllm-serve for {facts.checkpoints['target'].path}\n"
    # Without the statistics of iterations some releases count no draft tokens.
    return head + _dump({**_arguments(model, facts), "enable_iter_perf_stats": True})


def _dump(arguments: dict[str, Any]) -> str:
    return yaml.safe_dump(arguments, sort_keys=False, allow_unicode=False)


def _arguments(model: SpeculativeModel, facts: Facts) -> dict[str, Any]:
    spec, runtime = model.spec.target, model.spec.runtime
    method, generation = methods.of(model), generations.of(facts.version)
    spelling = generation.methods.get(model.spec.speculation.method)
    speculative = method.speculative_config(model, generation, facts)
    arguments: dict[str, Any] = {
        # Ours come later and win.
        **dict(sorted(runtime.arguments.items())),
        "dtype": _DTYPES[spec.dtype],
        "tensor_parallel_size": spec.parallelism.tensor,
        "pipeline_parallel_size": spec.parallelism.pipeline,
        "max_batch_size": spec.limits.max_batch_size,
        "max_input_len": spec.limits.max_input_len,
        "max_seq_len": spec.limits.max_seq_len,
        "max_num_tokens": spec.limits.max_num_tokens,
        "enable_chunked_prefill": runtime.chunked_context is True,
        "kv_cache_config": _cache(model, facts),
        "scheduler_config": {
            "capacity_scheduler_policy": _POLICIES[runtime.batch_scheduler_policy]
        },
        # Without it no request can ask for counts of draft tokens.
        "return_perf_metrics": True,
        **{
            name: _SWITCHES.get(value, value) for name, value in sorted(runtime.parameters.items())
        },
        **(spelling.arguments if spelling else {}),
    }
    if speculative:
        arguments["speculative_config"] = speculative
    return arguments


def _cache(model: SpeculativeModel, facts: Facts) -> dict[str, Any]:
    """The key/value cache: the spec's size, else that of the memory plan, else the runtime's."""
    own = model.spec.target.kv_cache
    values: dict[str, Any] = {"enable_block_reuse": own.reuse}
    tokens = own.max_tokens
    if own.memory_percent is not None:
        values["free_gpu_memory_fraction"] = own.memory_percent / 100
    elif tokens is None:
        tokens = facts.kv_tokens.get("target")
    if tokens is not None:
        values["max_tokens"] = tokens
    if own.host_memory_mi_b is not None:
        values["host_cache_size"] = own.host_memory_mi_b * _MIB
    if model.spec.target.quantization.kv_cache == "FP8":
        values["dtype"] = "fp8"
    return values
