"""The Deployment of tritonserver pods on one published repository."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdec.api import names
from specdec.api.model import SpeculativeModel
from specdec.desired import pod
from specdec.desired.child import given, metadata
from specdec.desired.pod import Container, Placement, Volume
from specdec.triton import launch
from specdec.triton.ranks import PLAIN, Launch

PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}
CONTAINER = "server"
_PERIOD = 5
# A start is looked at more often than a running server: a small model is ready in seconds.
_STARTUP_PERIOD = 2
# Endpoints are removed while the server still answers: a client in between loses nothing.
_LINGER = 5
_MARGIN = 15


@dataclass(frozen=True)
class Revision:
    """What a server runs: a published repository (hash) by an image, on how many GPUs and ranks.

    `role` is whose server it is, and `folder` the part of the repository that it serves; one
    server for all models serves all of it.
    """

    repository: str
    image: str
    gpus: int = 0
    launch: Launch = PLAIN
    role: str = "target"
    folder: str = ""

    @property
    def directory(self) -> str:
        """The model repository inside the pod."""
        root = f"{names.REPOSITORIES}/{self.repository}"
        return f"{root}/{self.folder}" if self.folder else root


def deployment(
    model: SpeculativeModel, revision: Revision, volume: Volume, replicas: int
) -> dict[str, Any]:
    """The Deployment of a server: new pods come before old ones go."""
    full = {names.REPOSITORY: revision.repository}
    component = names.SERVERS[revision.role]
    budget = model.spec.serving.probes.startup_budget_seconds
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(
            model, names.server_name(model, revision.role), component, annotations=full
        ),
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 2,
            "progressDeadlineSeconds": budget + 300,
            "selector": {"matchLabels": names.selector(model, revision.role)},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "template": template(model, revision, volume, container(model, revision), component),
        },
    }


def template(
    model: SpeculativeModel,
    revision: Revision,
    volume: Volume,
    server: Container,
    component: str,
    volumes: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The template of a serving pod around its container."""
    serving = model.spec.serving
    short = {names.REPOSITORY: revision.repository[:16]}
    labels = pod.labels(names.labels(model, component), volume) | short
    nodes = pod.gpu_nodes(model, serving.node_selector, revision.gpus)
    memory = {"medium": "Memory", "sizeLimit": serving.shared_memory}
    made = pod.template(
        server,
        volume,
        labels,
        Placement(nodes, serving.tolerations, serving.affinity),
        [{"name": "shm", "emptyDir": memory}, *volumes],
        terminationGracePeriodSeconds=serving.drain.timeout_seconds + _LINGER + _MARGIN,
        **given(imagePullSecrets=pod.pull_secrets(model)),
    )
    made["metadata"]["annotations"] = {names.REPOSITORY: revision.repository}
    return made


def container(model: SpeculativeModel, revision: Revision) -> Container:
    """The container of a server: the only one of a pod, or the leader's of a group."""
    serving = model.spec.serving
    budget = serving.probes.startup_budget_seconds
    drain = serving.drain.timeout_seconds
    command = launch.command(revision.launch, revision.directory, exit_timeout_seconds=drain)
    variables = launch.environment(revision.launch)
    # The hook ends before the grace period does, even when the server does not.
    stop = launch.pre_stop(
        revision.launch, linger_seconds=_LINGER, exit_timeout_seconds=drain + _MARGIN - _PERIOD
    )
    return Container(
        name=CONTAINER,
        image=revision.image,
        pull_policy=model.spec.runtime.pull_policy,
        command=command,
        env=[{"name": name, "value": value} for name, value in variables.items()],
        mounts=[{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108
        resources=pod.with_gpus(serving.resources, revision.gpus),
        models_read_only=True,
        extra={
            "ports": [
                {"name": name, "containerPort": port, "protocol": "TCP"}
                for name, port in PORTS.items()
            ],
            "startupProbe": _probe("ready", math.ceil(budget / _STARTUP_PERIOD), _STARTUP_PERIOD),
            "readinessProbe": _probe("ready", 3),
            "livenessProbe": _probe("live", 6),
            "lifecycle": {"preStop": {"exec": {"command": stop}}},
        },
    )


def _probe(what: str, failures: int, period: int = _PERIOD) -> dict[str, Any]:
    return {
        "httpGet": {"path": f"/v2/health/{what}", "port": "http", "scheme": "HTTP"},
        "periodSeconds": period,
        "timeoutSeconds": 4,
        "failureThreshold": failures,
        "successThreshold": 1,
    }
