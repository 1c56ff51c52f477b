"""Build and order Kubernetes events, which `kubectl describe` lists at its end.

`Cluster.record_event` calls `event_of` for each transition of a condition, and sends the event.
"""

import os
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from specdec.api import names
from specdec.api.conditions import Transition


def event_of(regarding: Mapping[str, Any], transition: Transition, at: datetime) -> dict[str, Any]:
    """An events.k8s.io/v1 Event; its note is cut at the API server's limit of 1024 bytes."""
    meta, condition = regarding["metadata"], transition.condition
    stamp = at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    # `kubectl describe` sorts these events by name, so names grow with time.
    microseconds = int(at.timestamp() * 1_000_000)
    unique = f"{microseconds:x}{names.digest([meta['uid'], condition.type])[:4]}"
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{meta['name']}.{unique}", "namespace": meta["namespace"]},
        "eventTime": stamp,
        "type": "Warning" if transition.warning else "Normal",
        "reason": str(condition.reason),
        "action": str(condition.type),
        "note": condition.message.encode()[:1024].decode(errors="ignore"),
        "regarding": {
            "apiVersion": regarding["apiVersion"],
            "kind": regarding["kind"],
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta["uid"],
        },
        "reportingController": "specdec.dev/operator",
        "reportingInstance": os.environ.get("HOSTNAME", "specdec-operator")[:128],
    }


def time_of(event: Mapping[str, Any]) -> str:
    """When an event last happened; the text order of these times is their order."""
    series = event.get("series") or {}
    return str(
        series.get("lastObservedTime")
        or event.get("eventTime")
        or event.get("deprecatedLastTimestamp")
        or ""
    )
