"""Reasons that any condition can have."""

from specdec.api.condition_types import Type
from specdec.api.reasons.definition import Health, Reason, Section

_SECTION = Section(*Type)


class CommonReason(Reason):
    """Reasons that any condition can have."""

    WAITING = _SECTION.progress(
        "Waiting",
        "an earlier condition is not True yet, or a prune Job is still deleting directories of "
        "the volume; the message names it",
        "resolve the earlier condition; for a prune Job, wait",
    )
    QUEUED = _SECTION.progress(
        "Queued", "the pod of a Job has not started", "wait, or check the events of the pod"
    )
    POD_REJECTED = _SECTION.blocked(
        "PodRejected",
        "the API server rejects the pod of a Job, for example because of a quota, a limit range, "
        "a webhook or the pod security level of the namespace",
        "change what the message names; the Job tries again after some minutes by itself, or at "
        "once if it is deleted",
        health=Health.PROGRESSING,
    )
    REJECTED = _SECTION.failed(
        "Rejected",
        "the API server rejected an object of the operator, or an object of this name belongs to "
        "another owner",
        "read the message: it names a quota, a policy, missing rights, or an object to delete",
    )
    IMAGE_PULL_FAILED = _SECTION.blocked(
        "ImagePullFailed", "the node cannot pull an image", "correct the image or its pull secret"
    )
    UNSCHEDULABLE = _SECTION.blocked(
        "Unschedulable",
        "no node fits the pod",
        "free capacity, or relax selectors, tolerations or affinity; a pod with GPUs needs a "
        "node of `spec.gpu.product`, which the message names",
        health=Health.PROGRESSING,
    )
    SECRET_MISSING = _SECTION.blocked(
        "SecretMissing",
        "a Secret that the resource names does not exist or lacks the key: credentials of a "
        "source, a proxy, a certificate of `spec.serving.tls`",
        "create the Secret; a waiting pod starts by itself, but delete a Job that has failed",
        health=Health.PROGRESSING,
    )
    CONTAINER_CONFIG_ERROR = _SECTION.blocked(
        "ContainerConfigError",
        "the kubelet cannot create the container",
        "read the kubelet's error in the message",
    )
    CANCELLED = _SECTION.failed(
        "Cancelled", "something outside the operator ended the pod of a Job", "delete the Job"
    )
    INVALID_RESULT = _SECTION.failed(
        "InvalidResult",
        "a Job succeeded, but its termination message is not a valid result",
        "use the image of this release, then delete the Job",
    )
    INTERNAL = _SECTION.failed(
        "Internal",
        "a Job failed because of an error in specdec",
        "read the message and the Job's log, and report the error",
    )
