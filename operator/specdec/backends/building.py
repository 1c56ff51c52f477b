"""The parts of a build plan that all backends share, and the engine that results from a plan."""

from collections.abc import Mapping
from typing import Any

from specdec.api import names
from specdec.api.model import SpeculativeModel
from specdec.backends import methods
from specdec.backends.facts import Checkpoint, Engine

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
    """The engine's limits by name, in requests and tokens.

    `maxSeqLen` is the user's limit plus the draft length, because the executor keeps room for one
    draft at the end of a sequence.
    """
    values: dict[str, int] = model.models[role].limits.model_dump(by_alias=True)
    if methods.of(model).resends_sequence:
        values["maxInputLen"] = values["maxSeqLen"]
    values["maxSeqLen"] += draft_length(model, role)
    return values


def draft_length(model: SpeculativeModel, role: str, prebuilt: Checkpoint | None = None) -> int:
    """The draft tokens of a step; the executor keeps room for them at the end of a sequence.

    `prebuilt` is the engine of the role, which may be built for more draft tokens.
    """
    built = methods.of(model).max_draft_len(model) if role == "target" else 0
    return max(built, (prebuilt.facts.max_draft_len if prebuilt else 0) or 0)


def engine_of_plan(
    role: str, plan: Mapping[str, Any], inputs: Mapping[str, Any], reads: int
) -> Engine:
    """The engine of a plan. Its key is the digest of `inputs`, which determine all its bytes."""
    key = names.digest(dict(inputs))
    output = {"key": key, "output": f"{names.ENGINES}/{key}"}
    return Engine(role, key, {**plan, **output}, reads=reads)
