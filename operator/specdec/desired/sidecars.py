"""The sidecars of a resource as native ones: init containers that always restart.

They start before the server and stop after it. They have the security context of our own
containers, a /tmp of their own, none of the operator's volumes and no GPU.
"""

from typing import Any

from specdec.api.model import SpeculativeModel
from specdec.api.sidecars import Sidecar
from specdec.api.value import Value
from specdec.desired import pod
from specdec.desired.child import given
from specdec.desired.pod import Container


def containers(model: SpeculativeModel) -> tuple[Container, ...]:
    """The sidecars of every server pod."""
    return tuple(_container(model, sidecar) for sidecar in model.spec.serving.sidecars)


def volumes(model: SpeculativeModel) -> tuple[dict[str, Any], ...]:
    """The /tmp of each sidecar."""
    return tuple({"name": _tmp(item), "emptyDir": {}} for item in model.spec.serving.sidecars)


def _container(model: SpeculativeModel, sidecar: Sidecar) -> Container:
    probes = {
        "startupProbe": sidecar.startup_probe,
        "readinessProbe": sidecar.readiness_probe,
        "livenessProbe": sidecar.liveness_probe,
    }
    return Container(
        name=sidecar.name,
        image=sidecar.image,
        pull_policy=model.spec.runtime.pull_policy,
        command=(),
        env=pod.hidden_gpus({}),
        user_env=[_as_in_a_pod(item) for item in sidecar.env],
        mounts=[pod.prefixed(item) for item in sidecar.volume_mounts],
        resources=_as_in_a_pod(sidecar.resources),
        tmp=_tmp(sidecar),
        extra={
            "restartPolicy": "Always",
            # Unlike the commands of the operator, these may use $(NAME) of a variable.
            **given(
                command=list(sidecar.command),
                args=list(sidecar.args),
                ports=[_as_in_a_pod(item) for item in sidecar.ports],
                **{name: _as_in_a_pod(probe) for name, probe in probes.items() if probe},
            ),
        },
    )


def _as_in_a_pod(value: Value) -> dict[str, Any]:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


def _tmp(sidecar: Sidecar) -> str:
    return f"sidecar-{sidecar.name}"
