"""The flags of each program of a build, as values by name.

From the argument parsers of TensorRT-LLM's examples (`convert_checkpoint.py` of a model family,
of eagle, medusa and redrafter; `quantization/quantize.py`) and of `trtllm-build`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from failure import BuildError
from tensorrt_plan import EnginePlan

Flags = dict[str, object]

_FORMATS = {
    "FP8": "fp8",
    "INT8SQ": "int8_sq",
    "INT4AWQ": "int4_awq",
    "W4A8AWQ": "w4a8_awq",
    "NVFP4": "nvfp4",
}
# The only flag that is written with dashes, in the converters of EAGLE and Medusa.
_ON_HOST = "load-model-on-cpu"
# Flags that engine.extraArgs may not set: a value would contradict the plan, make an engine that
# no server loads, or write or run other files. The program also accepts a prefix of a flag, so
# prefixes of these are refused too.
OURS = (
    "checkpoint_dir",
    "model_config",
    "build_config",
    "model_cls_file",
    "model_cls_name",
    "output_dir",
    "max_batch_size",
    "max_input_len",
    "max_seq_len",
    "max_decoder_seq_len",
    "max_num_tokens",
    "max_beam_width",
    "max_draft_len",
    "speculative_decoding_mode",
    "use_paged_context_fmha",
    "use_fp8_context_fmha",
    "gemm_plugin",
    "gpt_attention_plugin",
    "low_latency_gemm_plugin",
    "workers",
    "gather_context_logits",
    "gather_generation_logits",
    "gather_all_token_logits",
    "logits_dtype",
    "kv_cache_type",
    "paged_kv_cache",
    "remove_input_padding",
    "context_fmha",
    "streamingllm",
    "strip_plan",
    "auto_parallel",
    "gpus_per_node",
    "output_timing_cache",
    "visualize_network",
    "dry_run",
)


def vector(flags: Mapping[str, object]) -> Iterator[str]:
    """`--flag=value` each; True is a flag alone, False and None leave it out."""
    for name, value in flags.items():
        if value is True:
            yield f"--{name}"
        elif value is not None and value is not False:
            yield f"--{name}={value}"


def split(plan: EnginePlan) -> Flags:
    """Base checkpoint and ranks, for a converter of a whole model."""
    return {"model_dir": plan.checkpoint, "tp_size": plan.tensor, "pp_size": plan.pipeline}


def convert(plan: EnginePlan, family: str) -> Flags:
    """A model family's converter."""
    int8 = plan.quantization.kv_cache == "INT8"
    if int8 and family != "llama":
        raise BuildError(
            "PlanInvalid",
            f"quantization.kvCache: INT8 alone is not in the {family} converter; set "
            "quantization.method too, or leave it out",
        )
    return {
        "dtype": plan.dtype,
        "int8_kv_cache": int8,
        "calib_dataset": plan.quantization.dataset if int8 else None,
    }


def quantize(plan: EnginePlan) -> Flags:
    """Post-training quantization; it reads Medusa heads as well."""
    quantization = plan.quantization
    cache = None if quantization.kv_cache == "Auto" else quantization.kv_cache.lower()
    flags: Flags = {
        "dtype": plan.dtype,
        "qformat": _FORMATS[quantization.method],
        "kv_cache_dtype": cache,
        "calib_size": quantization.samples,
        "calib_dataset": quantization.dataset,
    }
    if plan.mode == "medusa":
        flags |= {
            "medusa_model_dir": plan.heads,
            "num_medusa_heads": plan.block["numHeads"],
            "num_medusa_layers": plan.block["numLayers"],
            "max_draft_len": plan.max_draft_len,
        }
    return flags


def eagle_or_medusa(plan: EnginePlan, config: Mapping[str, Any]) -> Flags:
    """The converters that read base model and heads in one go."""
    if plan.mode == "eagle":
        return {
            "dtype": _dtype(plan, config),
            # Otherwise the model is loaded to the build's GPU, and weights that do not fit are
            # missing.
            _ON_HOST: True,
            "eagle_model_dir": plan.heads,
            "max_draft_len": plan.max_draft_len,
            "num_eagle_layers": plan.block["numLayers"],
            "max_non_leaves_per_layer": plan.block["maxNonLeavesPerLayer"],
        }
    int8 = plan.quantization.kv_cache == "INT8"
    return {
        "dtype": _dtype(plan, config),
        # Calibration runs the model, which takes too long without a GPU.
        _ON_HOST: not int8,
        "int8_kv_cache": int8,
        "calib_dataset": plan.quantization.dataset if int8 else None,
        "medusa_model_dir": plan.heads,
        "num_medusa_heads": plan.block["numHeads"],
        "num_medusa_layers": plan.block["numLayers"],
        "max_medusa_token_len": plan.max_draft_len,
    }


def redrafter(plan: EnginePlan, config: Mapping[str, Any]) -> Flags:
    """The ReDrafter converter, without the base model: releases name that flag differently."""
    return {
        "tp_size": plan.tensor,
        "dtype": _dtype(plan, config),
        "drafter_model_dir": plan.heads,
        "redrafter_num_beams": plan.block["numBeams"],
        "redrafter_draft_len_per_beam": plan.block["draftLenPerBeam"],
        "redrafter_no_greedy_search": not plan.block["greedySearch"],
    }


def engine(plan: EnginePlan, checkpoint: Path) -> Flags:
    """`trtllm-build` over a TensorRT-LLM checkpoint."""
    options, limits = plan.options, plan.limits
    external = plan.mode in ("draft_tokens_external", "lookahead_decoding")
    flags: Flags = {
        "checkpoint_dir": checkpoint,
        "max_batch_size": limits["maxBatchSize"],
        "max_input_len": limits["maxInputLen"],
        "max_seq_len": limits["maxSeqLen"],
        "max_num_tokens": limits["maxNumTokens"],
        "max_beam_width": 1,
        "kv_cache_type": "paged",
        "remove_input_padding": "enable",
        "use_paged_context_fmha": "enable" if options.paged_context_fmha else "disable",
        "use_fp8_context_fmha": "enable" if options.fp8_context_fmha else None,
        "gemm_plugin": options.gemm,
        "gpt_attention_plugin": options.gpt_attention,
        "low_latency_gemm_plugin": options.low_latency_gemm,
        "workers": options.workers,
        "gather_generation_logits": options.gather_generation_logits,
        "speculative_decoding_mode": None if plan.mode == "none" else plan.mode,
        # Checkpoints with heads carry their draft length themselves.
        "max_draft_len": plan.max_draft_len if external else None,
    }
    for name, value in options.extra:
        if any(own.startswith(name) for own in OURS):
            raise BuildError(
                "PlanInvalid",
                f"engine.extraArgs.{name}: follows from the spec; set the field it belongs to",
            )
        # For a flag without a value, the spec has an empty text.
        flags[name] = value or True
    return flags


def _dtype(plan: EnginePlan, config: Mapping[str, Any]) -> str:
    """The type for a converter of heads: these lack `auto`, which turns float32 into float16."""
    if plan.dtype != "auto":
        return plan.dtype
    stored = config.get("torch_dtype") or config.get("dtype")
    return "bfloat16" if stored == "bfloat16" else "float16"
