"""The PersistentVolumeClaim of a resource that names no existing claim."""

from collections.abc import Sequence
from typing import Any

from specdec.api import names
from specdec.api.model import SpeculativeModel
from specdec.desired.child import metadata


def claim(
    model: SpeculativeModel, size: str | None = None, modes: Sequence[str] = ()
) -> dict[str, Any]:
    """The PersistentVolumeClaim `<name>-models`; it is deleted with the resource.

    `size` is a quantity of bytes that replaces the spec's, for a claim that is already larger.
    `modes` are the access modes of a claim that exists, which cannot change.
    """
    storage = model.spec.storage
    spec: dict[str, Any] = {
        "accessModes": list(modes) or [model.access_mode],
        "resources": {"requests": {"storage": size or storage.size}},
    }
    if storage.storage_class_name is not None:
        # The empty name is a value of its own: no class, bind a volume that already exists.
        spec["storageClassName"] = storage.storage_class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(model, names.claim_name(model), "storage"),
        "spec": spec,
    }
