"""A changed Service is restored, and Available reports a Service without endpoints."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cluster import ControlPlane, processes
from controlplane.operating import Lab, Object, Operator, until
from controlplane.pipeline import at_rest, serve
from specdec.api import names

pytestmark = pytest.mark.controlplane

SERVICE = "kubernetes.io/service-name"
FIELDS = ("type", "selector", "ports", "sessionAffinity", "publishNotReadyAddresses")
# JSON patches of spec: manual changes of a user.
CHANGES: dict[str, list[tuple[str, str, Any]]] = {
    "another port number": [("replace", "/ports/0/port", 9000)],
    "every port number": [("replace", f"/ports/{i}/port", 9000 + i) for i in range(3)],
    "two port numbers swapped": [
        ("replace", "/ports/0/port", 8001),
        ("replace", "/ports/1/port", 8000),
    ],
    "another target port": [("replace", "/ports/0/targetPort", "metrics")],
    "one more key in the selector": [("add", "/selector/track", "none")],
    "session affinity": [("add", "/sessionAffinity", "ClientIP")],
    "addresses that are not ready": [("add", "/publishNotReadyAddresses", True)],
    "traffic of the own node alone": [("add", "/internalTrafficPolicy", "Local")],
    "another type": [("replace", "/type", "NodePort")],
    "a name outside": [
        ("replace", "/type", "ExternalName"),
        ("add", "/externalName", "example.com"),
    ],
}


@pytest.fixture(scope="module")
def served(operator: Operator, installed: ControlPlane) -> Iterator[Lab]:
    with Lab(installed, operator) as lab:
        serve(lab, "pair")
        yield lab


def spec(lab: Lab) -> Object:
    service = lab.get("service", "pair") or {}
    return {key: service["spec"].get(key) for key in FIELDS}


def slices(lab: Lab) -> list[Object]:
    """Return the EndpointSlices of the Service."""
    listed = lab.kubectl("get", "endpointslices", "-l", f"{SERVICE}=pair", "-o", "json")
    return list(json.loads(listed)["items"])


def reached(lab: Lab) -> bool:
    """Return whether the Service has a ready endpoint."""
    ends = [end for item in slices(lab) for end in item.get("endpoints") or []]
    return any(end["conditions"].get("ready") for end in ends)


@pytest.mark.parametrize("change", CHANGES)
def test_changed_service_is_restored(served: Lab, change: str) -> None:
    at_rest(served)
    before = spec(served)
    operations = [
        {"op": op, "path": f"/spec{path}", "value": value} for op, path, value in CHANGES[change]
    ]
    served.kubectl("patch", "service", "pair", "--type=json", "-p", json.dumps(operations))

    until(lambda: spec(served) == before, lambda: f"{before}: {served.describe('pair')}")
    until(lambda: reached(served), "ready endpoints")
    served.wait("pair")
    at_rest(served)


def test_restored_ports_are_removed_when_no_longer_desired(lab: Lab) -> None:
    """The restore must not leave a field manager that keeps the restored fields for ever."""
    serve(lab, "pair")
    operations = [{"op": "replace", "path": "/spec/ports/0/port", "value": 9000}]
    lab.kubectl("patch", "service", "pair", "--type=json", "-p", json.dumps(operations))
    until(lambda: 8000 in ports(lab), lambda: lab.describe("pair"))
    lab.patch("specm", "pair", {"spec": {"serving": {"tls": {"secretName": "pair-tls"}}}})
    until(lambda: 8000 not in ports(lab), lambda: f"{ports(lab)}: {lab.describe('pair')}")


def ports(lab: Lab) -> list[int]:
    return [port["port"] for port in (lab.get("service", "pair") or {})["spec"]["ports"]]


@pytest.fixture
def stopped(lab: Lab) -> Iterator[Callable[[], None]]:
    """Yield a function that pauses kube-controller-manager, which resumes after the test."""
    manager = processes.recorded(lab.plane.state.folder)["kube-controller-manager"]
    yield lambda: os.kill(manager.pid, signal.SIGSTOP)
    os.kill(manager.pid, signal.SIGCONT)


def test_service_without_ready_endpoints_is_not_available(
    lab: Lab, stopped: Callable[[], None]
) -> None:
    """The pods and the Deployment still report ready."""
    serve(lab, "pair")
    made = lab.all("pods", f"{names.COMPONENT}=server")[0]["metadata"]["creationTimestamp"]
    old = datetime.fromisoformat(made) + timedelta(seconds=15)
    until(lambda: datetime.now(UTC) > old, "pods that have been ready for a while")
    stopped()
    (endpoints,) = slices(lab)
    operation = {"op": "replace", "path": "/endpoints/0/conditions/ready", "value": False}
    patch = ("patch", "endpointslice", endpoints["metadata"]["name"], "--type=json", "-p")
    lab.kubectl(*patch, json.dumps([operation]))
    condition = lab.wait("pair", "Available", "False", "NoEndpoints")
    assert "Service pair leads to no ready address" in condition["message"]
    assert lab.condition("pair")["reason"] == "NoEndpoints"
    lab.kubectl(*patch, json.dumps([{**operation, "value": True}]))
    lab.wait("pair")
