"""The Job that lists or deletes what no resource on a claim uses; `specdec prune` creates it."""

from collections.abc import Mapping, Sequence
from typing import Any

from specdec.api import names
from specdec.api.jobs import Jobs
from specdec.api.pods import Pods
from specdec.desired import pod
from specdec.desired.child import given
from specdec.desired.pod import Container, Placement, Volume

COMPONENT = "prune"
# The operator ignores objects that it does not manage.
MANAGER = "specdec-cli"
_DEADLINE_SECONDS = 3600
# A Job whose creator was interrupted disappears by itself.
_KEPT_SECONDS = 600
_RESOURCES = {
    "requests": {"cpu": "100m", "memory": "64Mi"},
    "limits": {"memory": "256Mi"},
}


def job(
    name: str,
    namespace: str,
    volume: Volume,
    image: str,
    keep: Mapping[str, Sequence[str]],
    older_than: float,
    *,
    delete: bool,
    pods: Pods,
    jobs: Jobs,
    pull_secrets: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """The Job.

    Args:
        name, namespace: of the Job.
        volume: the claim.
        image: the operator's.
        keep: the names that a resource uses, by folder of the volume.
        older_than: the age (seconds) from which something unused is deleted.
        delete: without it, the Job only lists.
        pods, jobs, pull_secrets: those of a resource on the claim.
    """
    labels = {names.APP: "specdec", names.MANAGED_BY: MANAGER, names.COMPONENT: COMPONENT}
    container = Container(
        name=COMPONENT,
        image=image,
        pull_policy="IfNotPresent",
        command=[
            *("python", "-m", "specdec.jobs.prune", "--keep", names.canonical(keep)),
            *("--older-than", str(older_than)),
            *(["--delete"] if delete else []),
        ],
        env=[{"name": "PYTHONUNBUFFERED", "value": "1"}],
        resources=_RESOURCES,
        models_read_only=not delete,
    )
    template = pod.template(
        container,
        volume,
        pod.labels(labels, volume),
        Placement(jobs.node_selector, jobs.tolerations, jobs.affinity),
        pods=pods,
        restartPolicy="Never",
        **given(imagePullSecrets=[dict(secret) for secret in pull_secrets]),
    )
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            **pod.job_spec(template, 0, _DEADLINE_SECONDS),
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
        },
    }
