"""What the build plans of all backends say alike, and how a plan becomes an engine."""

from collections.abc import Mapping
from typing import Any

from specdec.api import names
from specdec.api.model import Method, SpeculativeModel
from specdec.backends.facts import Engine

DTYPES = {
    "Auto": "auto",
    "Float32": "float32",
    "Float16": "float16",
    "BFloat16": "bfloat16",
}
# How `trtllm-build` spells what the target's engine is built for.
_MODES = {
    Method.NONE: "none",
    Method.DRAFT_TARGET: "draft_tokens_external",
    Method.EAGLE: "eagle",
    Method.MEDUSA: "medusa",
    Method.RE_DRAFTER: "explicit_draft_tokens",
    Method.LOOKAHEAD: "lookahead_decoding",
}


def mode(model: SpeculativeModel, role: str) -> str:
    """The engine's speculative decoding mode; a draft decodes plainly."""
    return _MODES[model.spec.speculation.method] if role == "target" else "none"


def limits(model: SpeculativeModel, role: str) -> dict[str, int]:
    """The engine's ceilings by name, in requests and tokens."""
    found: dict[str, int] = model.models[role].limits.model_dump(by_alias=True)
    if model.spec.speculation.method is Method.DRAFT_TARGET:
        # Every round sends the whole sequence so far as the input of a new request.
        found["maxInputLen"] = found["maxSeqLen"]
    return found


def keyed(role: str, plan: Mapping[str, Any], inputs: Mapping[str, Any]) -> Engine:
    """The engine of a plan; `inputs` is everything that changes the engine's bytes."""
    key = names.digest(dict(inputs))
    return Engine(role, key, {**plan, "key": key, "output": f"{names.ENGINES}/{key}"})
