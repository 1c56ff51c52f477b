"""Metadata that every child object has: name, labels and owner reference."""

from collections.abc import Mapping
from typing import Any

from specdec.api import names
from specdec.api.children import Tags
from specdec.api.model import SpeculativeModel

NO_TAGS = Tags()


def given(**fields: Any) -> dict[str, Any]:
    """The fields that have a value; server-side apply would also own an empty field."""
    return {name: value for name, value in fields.items() if value}


def metadata(
    model: SpeculativeModel,
    name: str,
    component: str,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    tags: Tags = NO_TAGS,
) -> dict[str, Any]:
    """Metadata of a child that belongs to one resource alone.

    `tags` are labels and annotations from the resource's spec. They never replace the operator's.
    """
    return {
        "name": name,
        "namespace": model.metadata.namespace,
        "labels": {**tags.labels, **names.labels(model, component), **(labels or {})},
        "ownerReferences": names.owned_by(model),
        **given(annotations={**tags.annotations, **(annotations or {})}),
    }
