"""The API server's restricted Pod Security admission accepts every pod of the operator."""

from collections.abc import Iterator

import pytest
import yaml

from cluster import ClusterError, ControlPlane
from controlplane.operating import Object, until
from support.golden_cases import CASES, generated

pytestmark = pytest.mark.controlplane

NAMESPACE = "restricted"
PROFILE = "pod-security.kubernetes.io/enforce"
# A golden case names these classes, and admission refuses pods whose class does not exist.
CLASSES: list[Object] = [
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "serving"},
        "value": 1,
    },
    {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "sandboxed"},
        "handler": "sandboxed",
    },
]


@pytest.fixture(scope="module")
def restricted(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Create a namespace with the `restricted` profile; yield its control plane."""
    meta = {"name": NAMESPACE, "labels": {PROFILE: "restricted"}}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
    control_plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([body, *CLASSES]))
    account = ("get", "serviceaccount", "default", "-n", NAMESPACE, "--ignore-not-found")
    until(lambda: control_plane.kubectl(*account).strip(), "an account for the pods")
    yield control_plane
    control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    for reference in ("priorityclass/serving", "runtimeclass/sandboxed"):
        control_plane.kubectl("delete", reference)


def pods() -> Iterator[Object]:
    """Yield every pod of every golden case, with a name from its case and object."""
    for case in CASES:
        for name, spec in generated(case).pods():
            yield pod(name, spec)


def pod(name: str, spec: Object) -> Object:
    meta = {"name": name.lower(), "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def tried(plane: ControlPlane, bodies: list[Object]) -> list[str]:
    flags = ("create", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-")
    return plane.kubectl(*flags, stdin=yaml.safe_dump_all(bodies)).splitlines()


def test_every_pod_of_the_operator_is_admitted(restricted: ControlPlane) -> None:
    every = list(pods())
    assert len(every) > len(CASES) * 3
    kinds = {path["spec"]["containers"][0]["name"] for path in every}
    assert len(kinds) >= 4, "fetch, engine, publish and server"
    assert len(tried(restricted, every)) == len(every)


@pytest.mark.parametrize("field", ["seccompProfile", "runAsNonRoot"])
def test_less_restricted_pod_is_refused(restricted: ControlPlane, field: str) -> None:
    loose = next(pods())
    del loose["spec"]["securityContext"][field]
    with pytest.raises(ClusterError, match="violates PodSecurity"):
        tried(restricted, [loose])
