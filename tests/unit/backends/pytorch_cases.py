"""Resources of the PyTorch backend for tests, and the files that the backend writes."""

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint, Facts
from specdec.backends.pytorch import BACKEND
from specdec.pipeline import validation
from support.checkpoint_facts import stated
from support.llm_api import schema
from support.simulated_cluster import FACTS, IMAGES, resource, source

Json = dict[str, Any]
EXPECTED: dict[str, Any] = yaml.safe_load(
    Path(__file__).with_name("speculative_configs.yaml").read_text("utf-8")
)
BLOCKS: dict[str, Json] = {
    "DraftTarget": {"draftTarget": {"draft": {"source": source("draft")}}},
    "Eagle3": {"eagle3": {"checkpoint": source("heads")}},
    "PARD": {"pard": {"draft": source("draft")}},
    "DFlash": {"dFlash": {"checkpoint": source("heads")}},
}
ROLES = {role: digit * 64 for role, digit in (("target", "a"), ("draft", "b"), ("heads", "c"))}
EVERY = [(version, method) for version, rows in EXPECTED.items() for method in rows]


def pytorch(method: str, version: str = "1.2.1", **spec: Any) -> Json:
    """Return a valid resource; `spec` replaces whole blocks of its spec."""
    speculation: Json = {"method": method, **deepcopy(BLOCKS.get(method, {}))}
    if method != "None":
        speculation["maxDraftTokens"] = 5
    runtime = {"backend": "PyTorch", "version": version, "image": "example.com/llm:1"}
    return resource(**{"runtime": runtime, "speculation": speculation, **spec})


def put(cr: Json, path: str, value: Any) -> Json:
    place = cr["spec"]
    *parents, last = path.split(".")
    for name in parents:
        place = place.setdefault(name, {})
    place[last] = value
    return cr


def files(cr: Json, **known: Any) -> Mapping[str, str]:
    model = SpeculativeModel.parse(cr)
    checkpoints = {
        role: Checkpoint(role, ROLES[role], "", 1_000_000, stated(FACTS)) for role in model.sources
    }
    facts = Facts(version=validation.version(model), checkpoints=checkpoints, **known)
    return BACKEND.repository(model, facts)


def configuration(cr: Json, **known: Any) -> Json:
    text = files(cr, **known)["tensorrt_llm/1/model.yaml"]
    read: Json = yaml.safe_load(text)
    return read


def errors(value: Json, version: str) -> list[str]:
    """Return violations of this version's schema, in which keys of mappings are text."""
    written = yaml.safe_load(yaml.safe_dump(value))
    own = written.get("speculative_config", {})
    if "draft_len_schedule" in own:
        own["draft_len_schedule"] = {str(k): v for k, v in own["draft_len_schedule"].items()}
    return [error.message for error in Draft202012Validator(schema(version)).iter_errors(written)]


def problem(cr: Json) -> str:
    cause = validation.first_problem(SpeculativeModel.parse(cr), IMAGES)
    return cause.message if cause else ""
