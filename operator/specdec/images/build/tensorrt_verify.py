"""Compare a built engine's `config.json` with its plan: a server does not check it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from failure import BuildError
from tensorrt_plan import EnginePlan

# TensorRT-LLM's numbers of its modes; some releases write the name instead.
_MODES = {
    "none": 1,
    "draft_tokens_external": 2,
    "medusa": 4,
    "lookahead_decoding": 8,
    "explicit_draft_tokens": 16,
    "eagle": 32,
}
# The default of every converter.
_LOGITS = "float32"


def verify(plan: EnginePlan, config: Mapping[str, Any], engine: Path) -> int:
    """Compare with the plan: mode, draft length, ranks, rank files, and what a build may turn off.

    Returns:
        the vocabulary's size in tokens.

    Raises:
        BuildError: they differ, or the file is not an engine's.
    """
    try:
        model, built = config["pretrained_config"], config["build_config"]
        mapping = model["mapping"]
        actual = {
            "speculative_decoding_mode": _mode(built.get("speculative_decoding_mode")),
            "max_draft_len": _draft_length(plan, model, built),
            "tp_size": int(mapping["tp_size"]),
            "pp_size": int(mapping["pp_size"]),
            "rank files": len(list(engine.glob("rank*.engine"))),
            # Without it no block of the cache is reused, and a server only logs a warning.
            "use_paged_context_fmha": bool(
                (built.get("plugin_config") or {}).get(
                    "use_paged_context_fmha", plan.options.paged_context_fmha
                )
            ),
            # The repository declares logits in FP32, which the server checks on each answer.
            "logits_dtype": str(model.get("logits_dtype", _LOGITS)),
        }
        vocab = int(model["vocab_size"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BuildError(
            "EngineMismatch",
            f"config.json of the built engine lacks what a server needs ({error}); see the "
            "output of trtllm-build",
        ) from error
    planned = {
        "speculative_decoding_mode": plan.mode,
        "max_draft_len": plan.max_draft_len,
        "tp_size": plan.tensor,
        "pp_size": plan.pipeline,
        "rank files": plan.world,
        "use_paged_context_fmha": plan.options.paged_context_fmha,
        "logits_dtype": _LOGITS,
    }
    wrong = [
        f"{key} is {actual[key]}, not {planned[key]}"
        for key in planned
        if actual[key] != planned[key]
    ]
    if wrong:
        raise BuildError(
            "EngineMismatch",
            f"the built engine differs from its plan: {'; '.join(wrong)}; check "
            "engine.extraArgs and that the image is of the version in spec.runtime.version",
        )
    return vocab


def _mode(value: object) -> str:
    if isinstance(value, str):
        return value.lower()
    names = {number: name for name, number in _MODES.items()}
    return names.get(int(value), str(value)) if isinstance(value, int) else "none"


def _draft_length(plan: EnginePlan, model: Mapping[str, Any], built: Mapping[str, Any]) -> int:
    """The longest draft in tokens, from the field in which the mode has it."""
    if plan.mode == "explicit_draft_tokens":
        beams, length = model["redrafter_num_beams"], model["redrafter_draft_len_per_beam"]
        return int(beams) * int(length)
    if plan.mode in ("eagle", "medusa"):
        return int(model["max_draft_len"])
    return int(built.get("max_draft_len") or 0)
