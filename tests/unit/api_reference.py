"""The API reference, generated from the CustomResourceDefinition.

`python tests/unit/api_reference.py` writes docs/api.md; a test compares the two.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CRD = ROOT / "crds" / "speculativemodels.yaml"
REFERENCE = ROOT / "docs" / "api.md"
Schema = dict[str, Any]
HEAD = """\
# SpeculativeModel, specdec.dev/v1alpha1

This page is generated from `crds/speculativemodels.yaml`; `kubectl explain specm.spec` shows the
same text. Fields in **bold** are required if their parent is set. The API needs Kubernetes 1.30 or
newer.
"""
# The fields that most resources set, in the order in which a person decides about them.
FIRST = """
## Start with these 20 fields

Most resources need no other field. The samples in [Methods and samples](methods.md) set them.
"""
FIRST_FIELDS = (
    "runtime.backend",
    "runtime.version",
    "gpu.product",
    "target.source.huggingFace.repo",
    "target.source.huggingFace.revision",
    "target.source.huggingFace.tokenSecretRef",
    "target.source.pvc",
    "target.parallelism.tensor",
    "target.limits.maxBatchSize",
    "target.limits.maxInputLen",
    "target.limits.maxSeqLen",
    "target.limits.maxNumTokens",
    "speculation.method",
    "speculation.maxDraftTokens",
    "speculation.draftTarget.draft",
    "speculation.eagle3.checkpoint",
    "storage.size",
    "storage.existingClaim",
    "serving.replicas",
    "serving.openAI",
)
STATUS = """
## status

Only the operator writes the status. [Conditions](conditions.md) describes `conditions`.
"""
RULES = """
## Validation messages

Besides types, ranges and unknown values, the API server rejects a resource with these messages:
"""


def render(crd: Schema) -> str:
    """Return the whole reference as Markdown."""
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec, status = (schema["properties"][part] for part in ("spec", "status"))
    lines = [HEAD, FIRST.strip("\n"), "", *_first_fields(spec), ""]
    for name, part in spec["properties"].items():
        lines += [f"## spec.{name}{_need(name, spec)}", "", part["description"]]
        if "properties" in part:
            lines += ["", *table(part)]
        else:
            default = f", default {_default(part)}" if _default(part) else ""
            lines += ["", f"Type {_type(part)}{default}."]
        lines.append("")
    lines += [STATUS.strip("\n"), "", *table(status), "", RULES.strip("\n"), ""]
    lines += [f"- {message}" for message in dict.fromkeys(messages(schema))]
    return "\n".join(lines) + "\n"


def _first_fields(spec: Schema) -> list[str]:
    """Return a table of `FIRST_FIELDS`; raises KeyError for a field that the API lacks."""
    lines = ["| Field of `spec` | Type | Default | Meaning |", "|---|---|---|---|"]
    for path in FIRST_FIELDS:
        field = spec
        for name in path.split("."):
            field = field["properties"][name]
        cells = (f"`{path}`", _type(field), _default(field), field["description"])
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def table(part: Schema) -> list[str]:
    """Return a table with a row for each field of a part; a row has the path within the part."""
    head = ["| Field | Type | Default | Meaning |", "|---|---|---|---|"]
    return head + [f"| {' | '.join(row)} |" for row in rows(part, "")]


def rows(part: Schema, path: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield field, type, default and meaning of every field of a schema, at any depth."""
    for name, child in part.get("properties", {}).items():
        here = f"{path}{name}"
        shown = f"**`{here}`**" if name in part.get("required", []) else f"`{here}`"
        same = _written_elsewhere(name, child)
        if same is not None:
            description = f"{child['description']} Its fields are those of {same}."
            yield shown, "object", "", description
            continue
        yield shown, _type(child), _default(child), child["description"]
        for inner, below in ((child, f"{here}."), (child.get("items", {}), f"{here}[].")):
            # Fields with the schema of a pod's field are documented by Kubernetes.
            if not inner.get("x-kubernetes-preserve-unknown-fields"):
                yield from rows(inner, below)


def _written_elsewhere(name: str, child: Schema) -> str | None:
    """Return the field whose table describes a draft or a source too; None for other fields."""
    if name == "draft" and "source" in child.get("properties", {}):
        return "spec.target"
    if name != "source" and "huggingFace" in child.get("properties", {}):
        return "spec.target.source"
    return None


def messages(part: Schema, name: str = "") -> Iterator[str]:
    """Yield the messages of all rules of a schema; "must be ..." gets the name of its field."""
    for rule in part.get("x-kubernetes-validations", []):
        text = rule["message"]
        yield f"{name} {text}" if text.startswith("must be") else text
    for field, child in part.get("properties", {}).items():
        yield from messages(child, field)
    if "items" in part:
        yield from messages(part["items"], name)


def _need(name: str, part: Schema) -> str:
    return " (required)" if name in part["required"] else ""


def _type(part: Schema) -> str:
    if "enum" in part:
        return ", ".join(f"`{value}`" for value in part["enum"])
    if part.get("x-kubernetes-int-or-string"):
        return "quantity"
    if part["type"] == "array":
        return f"list of {_type(part['items'])}"
    if "additionalProperties" in part:
        return f"map of {_type(part['additionalProperties'])}"
    if "minimum" in part:
        most = f" to {part['maximum']}" if "maximum" in part else " or more"
        return f"{part['type']}, {part['minimum']}{most}"
    return str(part["type"])


def _default(part: Schema) -> str:
    value = part.get("default", {})
    if value == {}:
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    REFERENCE.write_text(render(yaml.safe_load(CRD.read_text())))
