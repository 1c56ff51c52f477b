"""The claim of a resource that brings none of its own."""

from typing import Any

from specdec.api import names
from specdec.api.model import SpeculativeModel
from specdec.desired.child import metadata


def claim(model: SpeculativeModel, size: str | None = None) -> dict[str, Any]:
    """The PersistentVolumeClaim `<name>-models`; it goes with the resource.

    `size` is a quantity of bytes in place of that of the spec, for a claim that has more already.
    """
    storage = model.spec.storage
    spec: dict[str, Any] = {
        "accessModes": [storage.access_mode],
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
