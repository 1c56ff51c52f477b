"""Groups of pods that serve as one: a LeaderWorkerSet on one published repository.

The leader's pod is a serving pod whose mpirun also starts ranks in the workers' pods, through the
agent of `images/serving/agent.py`.
"""

from dataclasses import replace
from typing import Any

from specdec.api import names
from specdec.api.model import SpeculativeModel
from specdec.desired import pod, programs, serving, tls
from specdec.desired.child import metadata
from specdec.desired.pod import Container, Volume
from specdec.desired.serving import Revision
from specdec.triton import launch

AGENT, AGENT_KEY = "agent.py", "key"
_PROGRAM, _SECRET = "/specdec/group", "/specdec/key"


def objects(
    model: SpeculativeModel, revision: Revision, volume: Volume, replicas: int
) -> tuple[dict[str, Any], ...]:
    """The agent's program and the LeaderWorkerSet `<name>-group`."""
    return (config_map(model), leader_worker_set(model, revision, volume, replicas))


def secret(model: SpeculativeModel) -> dict[str, Any]:
    """The Secret with the key by which a worker recognizes its leader, without the value.

    The operator generates a value when it creates the Secret, and never reads it back.
    """
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(model, names.group_name(model), "server"),
        "type": "Opaque",
    }


def config_map(model: SpeculativeModel) -> dict[str, Any]:
    """The agent's program."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(model, names.group_name(model), "server"),
        "data": {AGENT: launch.program(AGENT)},
    }


def leader_worker_set(
    model: SpeculativeModel, revision: Revision, volume: Volume, replicas: int
) -> dict[str, Any]:
    """One group for each replica, replaced one after the other by default.

    `spec.serving.rollout.maxUnavailable` sets how many are replaced at the same time.

    If a pod restarts, its whole group restarts, because the ranks of an MPI job end together.
    """
    annotations = {names.REPOSITORY: revision.repository}
    rollout = model.spec.serving.rollout
    name, component = names.group_name(model), names.SERVERS[revision.role]
    # The default mode lets every user read the key; this mode lets only the pod's user and group.
    volumes = [
        {"name": "group", "configMap": {"name": name}},
        {"name": "key", "secret": {"secretName": name, "defaultMode": 0o440}},
    ]
    return {
        "apiVersion": names.GROUP_API,
        "kind": names.GROUP_KIND,
        "metadata": metadata(
            model, name, "server", annotations=annotations, tags=model.spec.metadata.servers
        ),
        "spec": {
            "replicas": replicas,
            "startupPolicy": "LeaderCreated",
            "networkConfig": {"subdomainPolicy": "Shared"},
            "rolloutStrategy": {
                "type": "RollingUpdate",
                # No surge: if there is only one group, the controller removes an additional group
                # at once. It then waits for ever if no group may be unavailable.
                "rollingUpdateConfiguration": {
                    "maxSurge": 0,
                    "maxUnavailable": rollout.max_unavailable or 1,
                    "partition": 0,
                },
            },
            "leaderWorkerTemplate": {
                "size": len(revision.launch.slots),
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": serving.template(
                    model,
                    revision,
                    volume,
                    _leader(model, revision),
                    component,
                    [programs.volume(model), *volumes, *tls.server(model).volumes],
                    tls.watchers(model, revision.image),
                ),
                "workerTemplate": serving.template(
                    model, revision, volume, _worker(model, revision), names.WORKER, volumes
                ),
            },
        },
    }


def _leader(model: SpeculativeModel, revision: Revision) -> Container:
    server = serving.container(model, revision)
    budget = model.spec.serving.probes.startup_budget_seconds
    call = ["python3", f"{_PROGRAM}/{AGENT}", "call", str(budget)]
    variables = launch.remote_shell(call)
    return replace(
        server,
        env=[*server.env, *({"name": name, "value": value} for name, value in variables.items())],
        mounts=[*server.mounts, *_mounts()],
    )


def _worker(model: SpeculativeModel, revision: Revision) -> Container:
    """A worker's container, without Triton's ports and without probes.

    Only the leader's container has ports, so only that one mounts certificates.
    """
    server = serving.container(model, revision)
    return Container(
        name=serving.CONTAINER,
        image=server.image,
        pull_policy=server.pull_policy,
        command=["python3", f"{_PROGRAM}/{AGENT}", "serve"],
        env=serving.variables(model, revision),
        user_env=server.user_env,
        mounts=[pod.SHARED_MEMORY, *_mounts(), *serving.extra_mounts(model)],
        resources=server.resources,
        models_read_only=True,
    )


def _mounts() -> list[dict[str, Any]]:
    return [
        {"name": "group", "mountPath": _PROGRAM, "readOnly": True},
        {"name": "key", "mountPath": _SECRET, "readOnly": True},
    ]
