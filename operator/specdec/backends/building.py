"""The parts of a build plan that all backends share, and the engine that results from a plan."""

from collections.abc import Mapping
from typing import Any

from specdec.api import names
from specdec.api.model import SpeculativeModel
from specdec.backends import methods
from specdec.backends.facts import Engine

DTYPES = {
    "Auto": "auto",
    "Float32": "float32",
    "Float16": "float16",
    "BFloat16": "bfloat16",
}


def speculation(model: SpeculativeModel, role: str) -> dict[str, Any]:
    """The values of the method in an engine's build plan; a draft decodes without speculation."""
    method = methods.of(model)
    if role != "target":
        return {"maxDraftTokens": 0, "speculativeDecodingMode": methods.PLAIN}
    return {
        "maxDraftTokens": method.max_draft_len(model),
        "speculativeDecodingMode": method.build_mode,
        **method.built_in(model),
    }


def limits(model: SpeculativeModel, role: str) -> dict[str, int]:
    """The engine's limits by name, in requests and tokens."""
    values: dict[str, int] = model.models[role].limits.model_dump(by_alias=True)
    if methods.of(model).resends_sequence:
        values["maxInputLen"] = values["maxSeqLen"]
    return values


def keyed(role: str, plan: Mapping[str, Any], inputs: Mapping[str, Any]) -> Engine:
    """The engine of a plan; its key is the digest of `inputs`, which has all that changes it."""
    key = names.digest(dict(inputs))
    return Engine(role, key, {**plan, "key": key, "output": f"{names.ENGINES}/{key}"})
