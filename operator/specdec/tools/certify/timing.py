"""How long each stage of a resource took, by the times in its conditions.

`report` and `run` call it. A stage starts when the one before it ended.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from specdec.api.condition_types import MEASURED, OPTIONAL, Type

Json = dict[str, Any]
_STAGES = tuple(t for t in Type if t not in OPTIONAL and t not in (*MEASURED, Type.READY))


def stages(body: Mapping[str, Any], end: str) -> list[Json]:
    """The stages up to `Available`, then verification and benchmark, with their seconds.

    A stage that is not True ends at `end`; the stages after it are left out.

    Args:
        body: the resource at its end.
        end: RFC 3339.
    """
    by_type = {item["type"]: item for item in body.get("status", {}).get("conditions", [])}
    clock = datetime.fromisoformat(body["metadata"]["creationTimestamp"])
    result: list[Json] = []
    for kind in (*_STAGES, Type.SPECULATION_ACTIVE, Type.BENCHMARK_COMPLETED):
        condition = by_type.get(kind)
        if condition is None or condition["reason"] in ("NotRun", "MethodNone"):
            continue
        stopped = kind in _STAGES and condition["status"] != "True"
        moment = datetime.fromisoformat(end if stopped else condition["lastTransitionTime"])
        seconds = max(0.0, (moment - clock).total_seconds())
        result.append(
            {
                "stage": _NAMES.get(kind, str(kind)),
                "status": condition["status"],
                "reason": condition["reason"],
                "seconds": round(seconds, 1),
            }
        )
        if stopped:
            break
        clock = max(clock, moment)
    return result


# The verification Job measures three conditions; the first of them stands for the Job.
_NAMES = {Type.SPECULATION_ACTIVE: "Verification", Type.BENCHMARK_COMPLETED: "Benchmark"}


def total(timed: Sequence[Json]) -> float:
    """The seconds of all stages."""
    return float(sum(item["seconds"] for item in timed))
