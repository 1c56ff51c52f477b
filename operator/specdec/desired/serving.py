"""The Deployment of a server's pods on one published repository."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdec import servers
from specdec.api import names
from specdec.api.matrix import support
from specdec.api.model import SpeculativeModel
from specdec.desired import openai, packages, pod, probes, programs, proxy, tls
from specdec.desired import sidecars as user_sidecars
from specdec.desired.child import given, metadata
from specdec.desired.pod import Container, Placement, Volume
from specdec.servers.kind import Start, Stopping
from specdec.triton import launch, start
from specdec.triton.layout import PLAIN, Launch

CONTAINER = "server"
# Seconds that a stopping server goes on serving, until no endpoint leads new clients to it.
_LINGER = 5
# Seconds at the end of the grace period, in which the server may end. The linger time, the wait
# for connections and the drain timeout come before them.
_MARGIN = 15
# Seconds by which the preStop hook ends before the grace period does.
_HOOK_MARGIN = 5
# Seconds by which the wait for a repair ends before the startup probe would end the container. The
# container then exits with the real reason.
_BEFORE_PROBE = 20
# Seconds that the preStop hook waits after the largest age of a gRPC connection.
_RECONNECT_MARGIN = 5


@dataclass(frozen=True)
class Revision:
    """What a server runs: a published repository (its hash), an image, and its GPUs and ranks.

    `role` is the model that the server is for. `folder` is the part of the repository that it
    serves; empty means all of it. `product` is the GPU product that its engines are built for.
    `engines` are the models that the probes ask for a token.
    `certificate` is the fingerprint of the certificate files for which pods were last replaced.
    `operator_image` and `checkpoint`, the directory of the target's checkpoint, are for the OpenAI
    endpoint, and for front ends that read the checkpoint themselves.
    """

    repository: str
    image: str
    gpus: int = 0
    launch: Launch = PLAIN
    role: str = "target"
    folder: str = ""
    product: str | None = None
    certificate: str = ""
    engines: tuple[str, ...] = ()
    operator_image: str = ""
    checkpoint: str = ""

    @property
    def directory(self) -> str:
        """The model repository inside the pod."""
        root = f"{names.REPOSITORIES}/{self.repository}"
        return f"{root}/{self.folder}" if self.folder else root


def deployment(
    model: SpeculativeModel, revision: Revision, volume: Volume, replicas: int
) -> dict[str, Any]:
    """The Deployment of a server."""
    annotations = {names.REPOSITORY: revision.repository}
    component = names.SERVERS[revision.role]
    budget = model.spec.serving.probes.startup_budget_seconds
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(
            model,
            names.server_name(model, revision.role),
            component,
            annotations=annotations,
            tags=model.spec.metadata.servers,
        ),
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 2,
            "progressDeadlineSeconds": budget + 300,
            "selector": {"matchLabels": names.selector(model, revision.role)},
            "strategy": strategy(model, revision.role),
            "template": template(
                model,
                revision,
                volume,
                container(model, revision),
                component,
                [
                    programs.volume(model),
                    *tls.server(model).volumes,
                    *openai.volumes(model),
                    *([packages.volume()] if _packages(model) else []),
                ],
                [
                    *tls.watchers(model, revision.image),
                    *openai.containers(
                        model, revision.operator_image, revision.checkpoint, _LINGER
                    ),
                    *proxy.containers(
                        model, revision.operator_image, revision.checkpoint, _LINGER
                    ),
                ],
                [packages.container(model, revision.operator_image)] if _packages(model) else [],
            ),
        },
    }


def strategy(model: SpeculativeModel, role: str = "target") -> dict[str, Any]:
    """How new pods replace old ones.

    If pods use GPUs, an old pod ends before its new pod starts, unless the resource sets other
    bounds. Few clusters have spare GPUs, and a new pod without GPUs would stay pending. The bounds
    count replicas of the service. If a server has its own number of pods, and that is
    above 1, at least one pod stays available.
    """
    rollout = model.spec.serving.rollout
    if rollout.strategy == "Recreate":
        return {"type": "Recreate"}
    surge, unavailable = rollout.max_surge, rollout.max_unavailable
    if surge is None:
        surge = (
            int(not unavailable)
            if unavailable is not None
            else int(not support(model.spec.runtime.backend).on_gpus)
        )
    if unavailable is None:
        unavailable = int(not surge)
    own = model.own_replicas(role)
    if own is not None:
        unavailable = min(unavailable, max(1, own - 1))
    return {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
    }


def template(
    model: SpeculativeModel,
    revision: Revision,
    volume: Volume,
    server: Container,
    component: str,
    volumes: Sequence[Mapping[str, Any]] = (),
    sidecars: Sequence[Container] = (),
    first: Sequence[Container] = (),
) -> dict[str, Any]:
    """The template of a serving pod; `server` is its container, `first` end before it starts."""
    serving = model.spec.serving
    short = {names.REPOSITORY: revision.repository[:16]}
    labels = pod.labels(names.labels(model, component), volume) | short
    claims = serving.resource_claims
    gpus = revision.gpus or len(claims)
    nodes = pod.gpu_nodes(revision.product, serving.node_selector, gpus)
    made = pod.template(
        server,
        volume,
        labels,
        Placement(nodes, serving.tolerations, serving.affinity),
        [
            pod.shared_memory(serving.shared_memory),
            *volumes,
            *(pod.prefixed(item) for item in serving.extra_volumes),
            *user_sidecars.volumes(model),
        ],
        model.spec.metadata.server_pods,
        sidecars,
        model.spec.pods,
        user_sidecars.containers(model),
        first,
        terminationGracePeriodSeconds=(
            _LINGER + reconnect_seconds(model) + serving.drain.timeout_seconds + _MARGIN
        ),
        **pod.resource_claims(claims),
        **given(
            imagePullSecrets=pod.pull_secrets(model),
            topologySpreadConstraints=_spread(model, component),
            priorityClassName=serving.priority_class_name,
            runtimeClassName=serving.runtime_class_name,
        ),
    )
    known = made["metadata"].get("annotations", {})
    made["metadata"]["annotations"] = {
        **known,
        names.REPOSITORY: revision.repository,
        **given(**{names.CERTIFICATE: revision.certificate if serving.tls else ""}),
    }
    return made


def connection_age_seconds(model: SpeculativeModel) -> int:
    """How long a client may keep one gRPC connection: at most the drain timeout of the server."""
    drain = model.spec.serving.drain.timeout_seconds
    return min(launch.CONNECTION_AGE, drain) if drain else launch.CONNECTION_AGE


def reconnect_seconds(model: SpeculativeModel) -> int:
    """How long a server that shuts down waits for its clients to close their connections."""
    if not model.spec.serving.drain.timeout_seconds:
        return 0
    # gRPC varies the age of a connection by a tenth.
    return math.ceil(connection_age_seconds(model) * 1.1) + _RECONNECT_MARGIN


def _spread(model: SpeculativeModel, component: str) -> list[dict[str, Any]]:
    """The user's constraints; one without a labelSelector counts the pods of this server."""
    labels = {names.INSTANCE: model.metadata.name, names.COMPONENT: component}
    own = {"labelSelector": {"matchLabels": labels}}
    constraints = model.spec.serving.topology_spread_constraints
    return [{**own, **constraint} for constraint in constraints]


def container(model: SpeculativeModel, revision: Revision) -> Container:
    """The container that runs the server, in a single pod or in the leader's pod of a group."""
    serving = model.spec.serving
    budget = serving.probes.startup_budget_seconds
    drain = serving.drain.timeout_seconds
    server = servers.of(model).serving
    secure = tls.server(model)
    return Container(
        name=CONTAINER,
        image=revision.image,
        pull_policy=model.spec.runtime.pull_policy,
        command=start.checked(
            _command(model, revision),
            names.manifest(revision.repository),
            max(_BEFORE_PROBE, budget - _BEFORE_PROBE),
        ),
        env=[*variables(model, revision), *secure.env],
        user_env=[item.model_dump(by_alias=True, exclude_none=True) for item in serving.env],
        mounts=[
            pod.SHARED_MEMORY,
            programs.MOUNT,
            *secure.mounts,
            *([packages.MOUNT] if _packages(model) else []),
            *extra_mounts(model),
        ],
        resources=_resources(model, revision),
        models_read_only=True,
        extra={
            **given(ports=pod.ports({} if server.proxy else server.ports)),
            **probes.probes(
                server,
                revision.launch,
                revision.engines,
                checkpoint=revision.checkpoint,
                name=model.metadata.name,
                budget_seconds=budget,
                drain_seconds=drain,
                tls=tls.files(model),
            ),
            "lifecycle": {"preStop": {"exec": {"command": _pre_stop(model, revision)}}},
        },
    )


def _command(model: SpeculativeModel, revision: Revision) -> list[str]:
    serving = model.spec.serving
    return servers.of(model).serving.command(
        Start(
            revision.launch,
            revision.directory,
            checkpoint=revision.checkpoint,
            target=model.spec.target,
            name=model.metadata.name,
            version=model.spec.runtime.version
            or support(model.spec.runtime.backend).default_version,
            exit_timeout_seconds=serving.drain.timeout_seconds,
            connection_age_seconds=connection_age_seconds(model),
            tls=tls.files(model),
            health_only=not serving.takes_http,
            log_verbose=serving.triton.log_verbose if serving.triton else 0,
        )
    )


def _pre_stop(model: SpeculativeModel, revision: Revision) -> list[str]:
    """The hook, which ends before the grace period does, even when the server does not."""
    serving = model.spec.serving
    return servers.of(model).serving.pre_stop(
        Stopping(
            revision.launch,
            linger_seconds=_LINGER,
            reconnect_seconds=reconnect_seconds(model),
            exit_timeout_seconds=serving.drain.timeout_seconds + _MARGIN - _HOOK_MARGIN,
            # The clients of the OpenAI endpoint count too, so that it ends before the server.
            client_ports=(serving.open_ai.port,) if serving.open_ai else (),
        )
    )


def _packages(model: SpeculativeModel) -> bool:
    """Whether the server imports TensorRT-LLM's Python package in an image of Triton."""
    return servers.of(model).serving.packages and packages.needed(model)


def extra_mounts(model: SpeculativeModel) -> list[dict[str, Any]]:
    """The mounts that the resource adds to every container that runs the server."""
    return [pod.prefixed(item) for item in model.spec.serving.extra_volume_mounts]


def variables(model: SpeculativeModel, revision: Revision) -> list[dict[str, str]]:
    """Environment of every container that runs MPI ranks of the server."""
    values = servers.of(model).serving.environment(revision.launch)
    return [
        *({"name": name, "value": value} for name, value in values.items()),
        *pod.hidden_gpus(_resources(model, revision)),
        *pod.NO_TELEMETRY,
    ]


def _resources(model: SpeculativeModel, revision: Revision) -> dict[str, Any]:
    serving = model.spec.serving
    return pod.with_gpus(serving.resources, revision.gpus, serving.resource_claims)
