"""Other resources of the simulated cluster: of a traffic split, and of a benchmark."""

from typing import Any

from specdec.api.reasons import EngineReason, ReadyReason

Json = dict[str, Any]


def other_resource(*, ready: bool, pods: int = 1) -> Json:
    """Another resource, with its Ready condition and its number of ready pods."""
    condition = {
        "type": "Ready",
        "status": str(ready),
        "reason": str(ReadyReason.SERVING if ready else EngineReason.BUILDING),
    }
    status = {"conditions": [{**condition, "observedGeneration": 1}], "readyReplicas": pods}
    return {"metadata": {"name": "other", "generation": 1}, "spec": {}, "status": status}


def baseline(cr: Json) -> Json | None:
    """The resource that a benchmark compares with: Ready, and like `cr` except for the method."""
    named = cr["spec"].get("benchmark", {}).get("baseline")
    if named is None:
        return None
    ready = {"type": "Ready", "status": "True", "observedGeneration": 1}
    return {
        **cr,
        "metadata": {**cr["metadata"], "name": named["modelRef"]["name"]},
        "spec": {**cr["spec"], "speculation": {"method": "None"}},
        "status": {"conditions": [ready]},
    }
