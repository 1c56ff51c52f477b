"""The plan of a Reference build, and the `config.json` that describes the built engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import convert
from failure import BuildError

# The numbers TensorRT-LLM's own config.json uses.
_MODES = {"none": 1, "draft_tokens_external": 2, "lookahead_decoding": 8}


@dataclass(frozen=True)
class BuildPlan:
    """What to build. Limits are in tokens, except `max_batch_size` in sequences."""

    checkpoint: Path
    output: Path
    key: str
    role: str
    dtype: str
    max_batch_size: int
    max_input_len: int
    max_seq_len: int
    max_num_tokens: int
    max_draft_len: int
    mode: str
    lookahead: tuple[int, int, int] | None
    version: str

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> BuildPlan:
        """Check a plan and set the defaults of missing fields.

        Raises:
            BuildError: a field is missing or has a value that this build does not support.
        """
        try:
            return cls._from_json(data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BuildError(
                "PlanInvalid", f"the build plan is not usable ({type(error).__name__}: {error})"
            ) from error

    @classmethod
    def _from_json(cls, data: Mapping[str, Any]) -> BuildPlan:
        _require(data, "backend", ("Reference",))
        _require(data, "dtype", ("auto", "float32", "float16"), "auto")
        _require(data, "speculativeDecodingMode", tuple(_MODES), "none")
        for key in ("tensorParallel", "pipelineParallel"):
            _require(data, key, (1,), 1)
        limits, shape = data["limits"], data.get("lookahead")
        names = ("windowSize", "ngramSize", "verificationSetSize")
        dtype = str(data.get("dtype", "auto"))
        return cls(
            checkpoint=Path(data["checkpoint"]),
            output=Path(data["output"]),
            key=str(data["key"]),
            role=str(data.get("role", "target")),
            dtype="float32" if dtype == "auto" else dtype,
            max_batch_size=_positive(limits, "maxBatchSize"),
            max_input_len=_positive(limits, "maxInputLen"),
            max_seq_len=_positive(limits, "maxSeqLen"),
            max_num_tokens=_positive(limits, "maxNumTokens"),
            max_draft_len=int(data.get("maxDraftTokens") or 0),
            mode=str(data.get("speculativeDecodingMode", "none")),
            lookahead=None if not shape else tuple(int(shape[name]) for name in names),  # type: ignore[arg-type]
            version=str(data.get("version", "")),
        )


def _require(
    data: Mapping[str, Any], key: str, allowed: tuple[object, ...], default: object = None
) -> None:
    value = data.get(key, default)
    if value not in allowed:
        choices = ", ".join(str(item) for item in allowed)
        raise BuildError(
            "PlanInvalid", f"{key}: {value!r} must be {choices} for the Reference build"
        )


def _positive(limits: Mapping[str, Any], key: str) -> int:
    value = int(limits[key])
    if value < 1:
        raise BuildError("PlanInvalid", f"limits.{key}: {value} must be at least 1")
    return value


def engine_config(
    plan: BuildPlan, config: Mapping[str, Any], shape: convert.Shape
) -> dict[str, Any]:
    """Return the engine's `config.json`, with the keys a TensorRT-LLM engine has."""
    base, scaling = convert.rotary(config)
    model = {
        "architecture": "LlamaForCausalLM",
        "dtype": plan.dtype,
        "logits_dtype": "float32",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_size": shape.head,
        "hidden_act": "silu",
        "norm_epsilon": float(config.get("rms_norm_eps", 1e-6)),
        "position_embedding_type": "rope_gpt_neox",
        "max_position_embeddings": int(config.get("max_position_embeddings") or plan.max_seq_len),
        "rotary_base": base,
        "rotary_scaling": scaling,
        "share_embedding_table": shape.tied,
        "mapping": {"world_size": 1, "tp_size": 1, "pp_size": 1, "cp_size": 1, "gpus_per_node": 1},
        "quantization": {"quant_algo": None, "kv_cache_quant_algo": None},
    }
    build = {
        "max_batch_size": plan.max_batch_size,
        "max_input_len": plan.max_input_len,
        "max_seq_len": plan.max_seq_len,
        "max_num_tokens": plan.max_num_tokens,
        "opt_num_tokens": plan.max_batch_size,
        "max_beam_width": 1,
        "max_draft_len": plan.max_draft_len,
        "speculative_decoding_mode": _MODES[plan.mode],
        "kv_cache_type": "PAGED",
        "gather_context_logits": True,
        "gather_generation_logits": True,
        "strongly_typed": True,
        "weight_streaming": False,
        "lookahead_config": plan.lookahead,
        "plugin_config": {"use_paged_context_fmha": True, "tokens_per_block": 128},
    }
    return {"version": plan.version, "pretrained_config": model, "build_config": build}
