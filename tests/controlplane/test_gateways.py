"""The manifests for gateways on a real API server, and a real endpoint picker that uses them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import ClusterError, ControlPlane
from controlplane import definitions
from controlplane.operating import until
from controlplane.picker import Picker, Replica, pool_definitions, running
from support.ports import reserved

pytestmark = pytest.mark.controlplane

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests" / "gateways"
# The picker selects at random among replicas of equal load, so a test needs many picks.
PICKS = 40


def pool_and_route() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((MANIFESTS / "inferencepool.yaml").read_text()))


@pytest.fixture(scope="module")
def plane(bare: ControlPlane) -> Iterator[ControlPlane]:
    with definitions.installed(bare), definitions.installed(bare, pool_definitions()):
        yield bare


def apply(plane: ControlPlane, *bodies: dict[str, Any], dry: bool = False) -> str:
    argv = ["apply", "--server-side", "--validate=strict", "-n", "default", "-f", "-"]
    argv += ["--dry-run=server"] if dry else []
    return plane.kubectl(*argv, stdin=yaml.safe_dump_all(bodies))


def test_api_server_accepts_the_pool_and_its_route(plane: ControlPlane) -> None:
    output = apply(plane, *pool_and_route(), dry=True)
    assert "inferencepool.inference.networking.k8s.io/reference-draft-target" in output
    assert "httproute.gateway.networking.k8s.io/reference-draft-target" in output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targetPorts": [{"number": 0}]}, "targetPorts"),
        ({"selector": {"app": "a"}}, "selector"),
        ({"endpointPickerRef": {"name": "epp"}}, "port is required"),
    ],
)
def test_api_server_rejects_a_wrong_pool(
    plane: ControlPlane, change: dict[str, Any], message: str
) -> None:
    pool = pool_and_route()[0]
    pool["spec"] |= change
    with pytest.raises(ClusterError, match=message):
        apply(plane, pool, dry=True)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with reserved(1) as (port,):
        yield port


@pytest.fixture(scope="module")
def replicas(plane: ControlPlane, port: int) -> Iterator[tuple[Replica, Replica]]:
    """Create two ready pods of the sample; yield their endpoints, which share the port."""
    labels = pool_and_route()[0]["spec"]["selector"]["matchLabels"]
    made = (Replica("127.0.0.2", port), Replica("127.0.0.3", port))
    for number, replica in enumerate(made):
        name = f"replica-{number}"
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "automountServiceAccountToken": False,
                "containers": [{"name": "server", "image": "server"}],
            },
        }
        apply(plane, pod)
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        status = {"phase": "Running", "conditions": [ready], "podIP": replica.address}
        status["podIPs"] = [{"ip": replica.address}]
        patch = yaml.safe_dump({"status": status})
        argv = ("patch", "pod", name, "-n", "default")
        plane.kubectl(*argv, "--subresource=status", "--type=merge", "-p", patch)
    yield made
    plane.kubectl("delete", "pod", "-n", "default", "--all", "--force", "--grace-period=0")
    for replica in made:
        replica.close()


@pytest.fixture(scope="module")
def picker(
    plane: ControlPlane,
    replicas: tuple[Replica, Replica],
    port: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Picker]:
    """Run the picker with the published pool and configuration, on the port of the replicas."""
    pool = pool_and_route()[0]
    pool["spec"]["targetPorts"] = [{"number": port}]
    apply(plane, pool)
    log = tmp_path_factory.mktemp("picker") / "epp.log"
    name = pool["metadata"]["name"]
    with running(plane, name, MANIFESTS / "endpoint-picker.yaml", log) as started:
        yield started
    plane.kubectl("delete", "inferencepool", name, "-n", "default")


@pytest.mark.parametrize(
    ("busy", "idle"),
    [
        ((3, 2, None), (0, 2, None)),
        ((0, 2, None), (0, 1, None)),
        ((0, 1, 0.9), (0, 1, 0.2)),
        # Waiting requests count more than running requests.
        ((1, 1, 0.1), (0, 4, 0.1)),
    ],
    ids=["waiting", "running", "cache", "waiting-before-running"],
)
@pytest.mark.parametrize("first_is_busy", [True, False])
def test_picker_routes_to_the_replica_with_the_least_load(
    picker: Picker,
    replicas: tuple[Replica, Replica],
    port: int,
    busy: tuple[int, int, float | None],
    idle: tuple[int, int, float | None],
    first_is_busy: bool,
) -> None:
    first, second = replicas
    first.set_load(*(busy if first_is_busy else idle))
    second.set_load(*(idle if first_is_busy else busy))
    expected = f"{(second if first_is_busy else first).address}:{port}"
    picked: list[str] = []

    def settled() -> bool:
        picked[:] = [picker.pick() for _ in range(PICKS)]
        return set(picked) == {expected}

    until(settled, lambda: f"{expected} is not picked alone: {picked}")


def test_picker_uses_both_replicas_with_the_same_load(
    picker: Picker, replicas: tuple[Replica, Replica], port: int
) -> None:
    first, second = replicas
    for replica in (first, second):
        replica.set_load(1, 2, 0.5)
    expected = {f"{replica.address}:{port}" for replica in (first, second)}
    until(lambda: {picker.pick() for _ in range(PICKS)} == expected, "picks of both")
