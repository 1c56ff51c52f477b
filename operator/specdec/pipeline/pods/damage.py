"""Damaged files on the volume, as serving pods report them while they wait for the repair.

The program that starts a server (`images/serving/check_volume.py`) prints the report as the last
line of the container's log. The server's image is the user's, so its log is not trusted: a report
is shortened, and only its printable characters are kept.
"""

import json
from datetime import datetime
from typing import Any

from specdec.api.cause import Cause
from specdec.api.reasons import RepositoryReason
from specdec.desired.serving import CONTAINER
from specdec.pipeline.observed import Object, server_log_key
from specdec.pipeline.stage import Context

_CHARACTERS = 600


def reported(context: Context, pod: Object) -> Cause | None:
    """The cause with the damaged files that a pod reports; None where it reports none."""
    line = context.observed.logs.get(server_log_key(pod), "").strip().rpartition("\n")[2]
    try:
        report: Any = json.loads(line or "null")
    except (ValueError, RecursionError):
        return None
    match report:
        case {"volume": {"damaged": [str(), *_] as sentences}}:
            text = "; ".join(str(sentence) for sentence in sentences)[:_CHARACTERS]
            printable = "".join(character for character in text if character.isprintable())
            name = pod["metadata"]["name"]
            return Cause(
                RepositoryReason.VOLUME_DAMAGED, f"pod {name} waits for the repair of {printable}"
            )
        case _:
            return None


def started_at(pod: Object) -> datetime | None:
    """When the server's container started last; None where it does not run."""
    for status in pod.get("status", {}).get("containerStatuses", []):
        started = status.get("state", {}).get("running", {}).get("startedAt")
        if status.get("name") == CONTAINER and started:
            return datetime.fromisoformat(started)
    return None
