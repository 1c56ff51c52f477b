"""Jobs as a stage sees them: where one stands, whether to make it, which ones are out of date."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from specdec.api import names
from specdec.api.model import KIND, SpeculativeModel
from specdec.pipeline.observed import Object, Observed, Ref, job_state

JOB = "batch/v1"
SHAPE = "specdec.dev/shape"


@dataclass(frozen=True)
class Work:
    """One Job: its state, the live object, its pods, newest first, and the newest's last lines."""

    name: str
    state: Literal["Absent", "Deleting", "Running", "Complete", "Failed"]
    job: Object
    pods: list[Object]
    log: str = ""


def look(observed: Observed, name: str) -> Work:
    """Where the Job of that name stands."""
    job = observed.jobs.get(name)
    if job is not None and job["metadata"].get("deletionTimestamp"):
        return Work(name, "Deleting", job, [])
    pods = observed.pods_of(name)
    log = observed.logs.get(pods[0]["metadata"]["name"], "") if pods else ""
    state = job_state(job)
    if job is not None and state == "Running" and pods and _ends(job, pods[0]):
        state = "Failed"
    return Work(name, state, job or {}, pods, log)


def _ends(job: Object, pod: Object) -> bool:
    """Whether a pod ended with a code that its Job does not try again after.

    The Job says so some moments later; until then it would seem to go on.
    """
    rules = job["spec"].get("podFailurePolicy", {}).get("rules", [])
    final = [rule["onExitCodes"]["values"] for rule in rules if rule["action"] == "FailJob"]
    ended = (
        status.get("state", {}).get("terminated", {}).get("exitCode")
        for status in pod.get("status", {}).get("containerStatuses", [])
    )
    return any(code in values for code in ended for values in final)


def delete(name: str) -> Ref:
    """A Job to delete."""
    return Ref(JOB, "Job", name)


def shaped(job: Mapping[str, Any]) -> dict[str, Any]:
    """The Job with a mark of its whole spec: a Job's template cannot change, so a spec that
    changes without changing the Job's name (a pull secret, a node selector, memory) shows here.
    """
    metadata = dict(job["metadata"])
    metadata["annotations"] = {
        **metadata.get("annotations", {}),
        SHAPE: names.digest(job["spec"])[:16],
    }
    return {**job, "metadata": metadata}


def outdated(work: Work, wanted: Mapping[str, Any], model: SpeculativeModel) -> bool:
    """Whether an unfinished or failed Job has to make way for one with another spec."""
    if work.state not in ("Running", "Failed") or not sole_owner(work.job, model):
        return False
    shape = work.job["metadata"].get("annotations", {}).get(SHAPE)
    return shape is not None and shape != wanted["metadata"]["annotations"][SHAPE]


def sole_owner(job: Object, model: SpeculativeModel) -> bool:
    """Whether the Job is this resource's alone: no other resource shares it."""
    owners = [o for o in job["metadata"].get("ownerReferences", []) if o.get("kind") == KIND]
    return all(owner.get("uid") == model.metadata.uid for owner in owners)


def belongs(job: Object, model: SpeculativeModel) -> bool:
    """Whether the resource owns the Job, alone or with others."""
    labels = job["metadata"].get("labels", {})
    name = model.metadata.name
    return labels.get(names.MODEL) == name or names.sharer(name) in labels


def of(observed: Observed, model: SpeculativeModel, component: str | None = None) -> list[str]:
    """Names of the resource's very own Jobs, of one component or of all."""
    return [
        name
        for name, job in sorted(observed.jobs.items())
        if belongs(job, model)
        and sole_owner(job, model)
        and not job["metadata"].get("deletionTimestamp")
        and component in (None, job["metadata"].get("labels", {}).get(names.COMPONENT))
    ]


def unfinished(
    observed: Observed, model: SpeculativeModel, component: str | None = None
) -> list[str]:
    """Those of them that still run."""
    return [n for n in of(observed, model, component) if look(observed, n).state == "Running"]
