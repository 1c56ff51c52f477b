"""Which certificate a server's pods are to be of, as the containers beside the servers tell it."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from specdec.desired.serving import Revision
from specdec.pipeline.observed import Object, Observed

_MARK = re.compile(r"[0-9a-f]{16}")


def certified(observed: Observed, revision: Revision, live: Revision | None) -> Revision:
    """The revision with the mark of the newest certificate: another one replaces its pods.

    That is what pods say has changed since they started. Where none says so they are of the live
    mark, which stays.
    """
    pods = observed.serving_pods(revision.role)
    kept = (0.0, live.certificate if live else "")
    newest = max((told for pod in pods for told in _changed(observed, pod)), default=kept)
    return replace(revision, certificate=newest[1])


def _changed(observed: Observed, pod: Object) -> Iterator[tuple[float, str]]:
    """When the files of a pod changed, and their mark; nothing while they are as at its start."""
    line = observed.logs.get(pod["metadata"]["name"], "").strip().rpartition("\n")[2]
    try:
        told: Any = json.loads(line or "null")
    except ValueError:
        return
    match told:
        case {"certificate": {"started": str(old), "now": str(new), "at": int() | float() as at}}:
            if new != old and _MARK.fullmatch(new):
                yield float(at), new
        case _:
            pass
