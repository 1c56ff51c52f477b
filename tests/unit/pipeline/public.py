"""Public models for memory plans: results of their fetch Jobs, and resources."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint
from support.checkpoint_facts import stated
from support.simulated_cluster import resource, source

Json = dict[str, Any]


@cache
def models() -> dict[str, Json]:
    text = Path(__file__).with_name("public_models.yaml").read_text(encoding="utf-8")
    models: dict[str, Json] = yaml.safe_load(text)
    return models


# Bytes per parameter in a checkpoint's files, by quantization method.
_STORED = {"None": 2.0, "FP8": 1.0, "INT4AWQ": 0.53, "NVFP4": 0.5625}


def checkpoint(role: str, name: str, *, counted: bool = True, stored: str = "None") -> Checkpoint:
    """Return a checkpoint; without `counted`, its number of parameters is unknown.

    `stored` is the format of its weights. Embedding and output projection always have 16 bits.
    """
    row = models()[name]
    facts = {"dtype": "bfloat16", **row["config"]}
    if counted:
        facts["parameters"] = row["parameters"]
    if stored != "None":
        facts["quantization"] = stored
    ends = 2 * row["config"]["vocabSize"] * row["config"]["hiddenSize"]
    size = 2 * ends + (row["parameters"] - ends) * _STORED[stored]
    return Checkpoint(role, "0" * 64, "", int(size), stated(facts))


def spec(tensor: int = 1, method: str = "None", **more: Any) -> Json:
    """Return the block of a target or a draft in the spec."""
    return {
        "source": source("any"),
        "parallelism": {"tensor": tensor},
        "quantization": {"method": method},
        **more,
    }


def alone(product: str | None, target: Json, **more: Any) -> SpeculativeModel:
    """Return a resource of the TensorRT backend with a target alone."""
    gpu = {"product": product} if product else {}
    parts = {"runtime": {"backend": "TensorRT"}, "target": target, "gpu": gpu, **more}
    return SpeculativeModel.parse(resource("None", **parts))


def pair(
    product: str | None, target: Json, draft: Json, block: Json | None = None, **more: Any
) -> SpeculativeModel:
    """Return a resource with a target and a draft; `block` has further fields of draftTarget."""
    speculation = {
        "method": "DraftTarget",
        "maxDraftTokens": 10,
        "draftTarget": {"draft": draft, **(block or {})},
    }
    return alone(product, target, speculation=speculation, **more)
