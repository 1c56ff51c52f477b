"""Functions about the children of a resource that several modules share.

All are pure, except for the one that writes a log line.
"""

import logging
from collections.abc import Mapping
from typing import Any

from specdec.api import names
from specdec.api.model import API_VERSION, KIND, SpeculativeModel
from specdec.controller.drift import shared
from specdec.pipeline.observed import Object, Observed

logger = logging.getLogger(__name__)


def live_object(observed: Observed, kind: str, name: str) -> Object | None:
    """The observed object of a kind and name."""
    if kind == "PersistentVolumeClaim":
        claim = observed.claim
        return claim if claim is not None and claim["metadata"]["name"] == name else None
    if kind == names.GROUP_KIND:
        return observed.group
    by_kind = {
        "Deployment": {d["metadata"]["name"]: d for d in observed.deployments.values()},
        "Job": observed.jobs,
        "ConfigMap": observed.config_maps,
        "Service": observed.services,
    }
    return by_kind.get(kind, {}).get(name) or observed.optional_objects.get((kind, name))


def owner_keys(meta: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The resources that a child, given its metadata, belongs to; several for a shared Job.

    Both owner references and labels count. If somebody removes one of them, the other still leads
    to the resource, whose reconcile restores both.
    """
    owners = [
        owner["name"]
        for owner in meta.get("ownerReferences", [])
        if owner.get("kind") == KIND and owner.get("apiVersion") == API_VERSION
    ]
    labelled = names.models(meta.get("labels", {}))
    return [(meta["namespace"], name) for name in dict.fromkeys([*owners, *labelled])]


def labels_and_owners(intent: Object) -> dict[str, Any]:
    """The parts of a Job that still change once it exists: our labels, and its owners.

    Labels from a resource's spec are left out. They are for queueing systems, which read them when
    the Job is created, and resources that share a Job would overwrite each other's labels.
    """
    meta = intent["metadata"]
    kept = {k: meta[k] for k in ("name", "namespace", "labels", "ownerReferences") if k in meta}
    kept["labels"] = {k: v for k, v in meta.get("labels", {}).items() if names.ours(k)}
    return {"apiVersion": intent["apiVersion"], "kind": intent["kind"], "metadata": kept}


def field_manager(model: SpeculativeModel, intent: Object) -> str:
    """The field manager for an intent.

    Each resource that shares an object has its own field manager. Server-side apply then merges
    the labels and owners of these resources.
    """
    return f"{names.MANAGER}-{model.metadata.name}" if shared(intent) else names.MANAGER


def log_change(model: SpeculativeModel, message: str, *values: str) -> None:
    """Log one change of a child, with the resource that it belongs to."""
    meta = model.metadata
    logger.info(message, *values, extra={"resource": f"{meta.namespace}/{meta.name}"})
