"""The Jobs that list or delete what no resource on a claim uses.

`specdec prune` creates one for a person; the operator creates one for `revisionHistoryLimit`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from specdec.api import names
from specdec.api.jobs import Jobs
from specdec.api.model import SpeculativeModel
from specdec.api.pods import Pods
from specdec.desired import pod
from specdec.desired.child import given, metadata
from specdec.desired.fetch import own_job
from specdec.desired.pod import Container, Placement, Volume

COMPONENT = "prune"
# The argument that makes a Job delete; a Job without it only reads.
DELETE = "--delete"
# The manager of the Jobs of `specdec prune`. It is not the operator's, so the operator neither
# watches nor changes them. It only waits until their pods have ended.
MANAGER = "specdec-cli"
_DEADLINE_SECONDS = 3600
# Seconds that the Job waits before it deletes anything. In this time the operator checks once more
# that no resource of the claim is in progress, and otherwise deletes the Job.
_DELAY_SECONDS = 15
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
            *([DELETE] if delete else []),
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


def retention_job(
    model: SpeculativeModel,
    only: Mapping[str, Sequence[str]],
    repositories: Sequence[str],
    volume: Volume,
    image: str,
) -> dict[str, Any]:
    """The Job that deletes what is left of revisions outside a resource's history.

    Args:
        model: the resource.
        only: the names to delete, by folder of the volume.
        repositories: those in use; the Job also keeps what their manifests list.
        volume: the claim.
        image: the operator's.
    """
    container = Container(
        name=COMPONENT,
        image=image,
        pull_policy="IfNotPresent",
        command=[
            *("python", "-m", "specdec.jobs.prune", DELETE, "--older-than", "0"),
            *("--keep", names.canonical({"repositories": list(repositories)})),
            *("--only", names.canonical(only)),
            *("--delay", str(_DELAY_SECONDS)),
        ],
        env=[{"name": "PYTHONUNBUFFERED", "value": "1"}],
        resources=_RESOURCES,
    )
    content = names.digest({"only": only, "volume": volume.identity})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(
            model,
            names.job_name(model, COMPONENT, content),
            COMPONENT,
            tags=model.spec.metadata.jobs,
        ),
        "spec": own_job(model, container, volume, COMPONENT, [], _DEADLINE_SECONDS),
    }
