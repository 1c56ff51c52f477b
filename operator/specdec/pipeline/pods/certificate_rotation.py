"""Whether renewed certificate files require new pods of a server.

Triton reads its certificate files once, at its start. A sidecar of each server watches the files.
When they change, it prints a line with their mark: a fingerprint of their content. The operator
copies the newest mark into the pod template. A changed template replaces the pods.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from specdec.pipeline.observed import Object, Observed
from specdec.pipeline.pods.readiness import Served

_MARK = re.compile(r"[0-9a-f]{16}")


def newest(observed: Observed, role: str, live: Served | None) -> str:
    """The mark for the pod template of a role: the newest that its pods report.

    A report counts only if the files have changed since the pod started. Without such a report,
    the mark of the live pod template stays.
    """
    live_mark = (0.0, live.certificate if live else "")
    reported = (item for pod in observed.serving_pods(role) for item in _changes(observed, pod))
    return max(reported, default=live_mark)[1]


def _changes(observed: Observed, pod: Object) -> Iterator[tuple[float, str]]:
    """The time at which a pod's files changed, and their new mark; empty without a change."""
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
