"""Reasons of `Available`: pods, their rollout and their Service."""

from specdec.api.condition_types import Type
from specdec.api.reasons.definition import Health, Reason, Section

_SECTION = Section(Type.AVAILABLE)


class AvailableReason(Reason):
    """Reasons of `Available`."""

    PODS_READY = _SECTION.progress(
        "PodsReady", "the pods of the desired revision pass their probes"
    )
    STARTING = _SECTION.progress(
        "Starting",
        "pods are loading their models",
        "wait; `kubectl logs deploy/NAME -f` shows the progress",
    )
    CRASH_LOOP = _SECTION.blocked(
        "CrashLoop",
        "the server, or a container beside it, has exited and is not ready again",
        "read the message: it has the first errors and the last line of the server's log",
    )
    STARTUP_TIMEOUT = _SECTION.blocked(
        "StartupTimeout",
        "the server was not ready within `spec.serving.probes.startupBudgetSeconds`",
        "read the message, which has the end of the server's log; raise the field if the server "
        "only needs more time",
    )
    NOT_ANSWERING = _SECTION.blocked(
        "NotAnswering",
        "a pod was ready, and now fails its readiness probe: an engine gives no token, or a rank "
        "has died",
        "run `kubectl describe pod POD`, which has the message of the probe; the kubelet restarts "
        "the server if this lasts",
    )
    LEADER_WORKER_SET_MISSING = _SECTION.blocked(
        "LeaderWorkerSetMissing",
        "`spec.serving.nodesPerReplica` is above 1, and the cluster does not have the kind "
        "LeaderWorkerSet",
        "install the LeaderWorkerSet controller, or set the field to 1",
        health=Health.PROGRESSING,
    )
    ROLLOUT_STUCK = _SECTION.blocked(
        "RolloutStuck",
        "the new revision makes no progress: the Deployment is paused, cannot create its "
        "pods, or exceeded its deadline; old pods that the strategy kept still serve",
        "read the Deployment's reason in the message: resume it, or correct the quota or "
        "priority class that it names",
    )
    NO_ENDPOINTS = _SECTION.blocked(
        "NoEndpoints",
        "a pod has been ready for 10 seconds or more, but its Service has no ready endpoint",
        "run `kubectl describe service NAME`; the operator restores the fields that it sets in "
        "the Service, so check the pod labels and the cluster's endpoint controller",
    )
    STOPPING = _SECTION.progress(
        "Stopping",
        "`spec.suspend` is true, and pods of the service have not ended yet",
        "wait until their requests are finished; the message names the pods",
    )
    NOT_DEPLOYED = _SECTION.progress(
        "NotDeployed",
        "`spec.serving.replicas` is 0",
        "raise the field",
    )
