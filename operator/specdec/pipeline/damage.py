"""What serving pods report of damaged files on the volume, and wait for.

The program that starts a server (`payload/serving/check_volume.py`) prints it as the last line of
the container's log. The log is of the user's image: nothing but sentences is taken from it.
"""

import json
from datetime import datetime
from typing import Any

from specdec.api.cause import Cause
from specdec.desired.serving import CONTAINER
from specdec.pipeline.observed import Object, server_log
from specdec.pipeline.stage import Context

_CHARACTERS = 600


def waits(context: Context, pod: Object) -> Cause | None:
    """That a pod waits for the repair of files on the volume, and which; None if it does not."""
    line = context.observed.logs.get(server_log(pod), "").strip().rpartition("\n")[2]
    try:
        report: Any = json.loads(line or "null")
    except (ValueError, RecursionError):
        return None
    match report:
        case {"volume": {"damaged": [str(), *_] as sentences}}:
            text = "; ".join(str(sentence) for sentence in sentences)[:_CHARACTERS]
            shown = "".join(character for character in text if character.isprintable())
            name = pod["metadata"]["name"]
            return Cause("VolumeDamaged", f"pod {name} waits for the repair of {shown}")
        case _:
            return None


def since(pod: Object) -> datetime | None:
    """When the container of a serving pod was started last."""
    for status in pod.get("status", {}).get("containerStatuses", []):
        started = status.get("state", {}).get("running", {}).get("startedAt")
        if status.get("name") == CONTAINER and started:
            return datetime.fromisoformat(started)
    return None
