"""Which certificate a server's pods read, and whether renewed files have to replace them.

A container beside each server watches the files and prints a line when they change.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from specdec.pipeline.observed import Object, Observed
from specdec.pipeline.readiness import Served

_MARK = re.compile(r"[0-9a-f]{16}")


def newest(observed: Observed, role: str, live: Served | None) -> str:
    """The mark of the newest certificate that pods of a role report; another mark replaces them.

    Pods report only files that changed since they started. Where none did, the live mark stays.
    """
    live_mark = (0.0, live.certificate if live else "")
    reported = (item for pod in observed.serving_pods(role) for item in _changes(observed, pod))
    return max(reported, default=live_mark)[1]


def _changes(observed: Observed, pod: Object) -> Iterator[tuple[float, str]]:
    """When the files of a pod changed, and their mark; nothing while they are as at its start."""
    line = observed.logs.get(pod["metadata"]["name"], "").strip().rpartition("\n")[2]
    try:
        report: Any = json.loads(line or "null")
    except ValueError:
        return
    match report:
        case {"certificate": {"started": str(old), "now": str(new), "at": int() | float() as at}}:
            if new != old and _MARK.fullmatch(new):
                yield float(at), new
        case _:
            pass
