"""Disruption budgets, rollouts, placement, tags and routes on a real API server."""

import copy
import json
from functools import partial

import pytest
import yaml

from controlplane.operating import Lab, Object, until
from controlplane.pipeline import serve, unwritten
from specdec.api import names
from specdec.api.kinds import OPTIONAL_KINDS
from support.golden_cases import generated

pytestmark = pytest.mark.controlplane

TAGS = {
    "jobs": {"labels": {"kueue.x-k8s.io/queue-name": "builds"}},
    "jobPods": {"labels": {"team": "builders"}},
    "servers": {"annotations": {"note": "of the servers"}},
    "serverPods": {"labels": {"team": "search"}, "annotations": {"note": "of the pods"}},
    "services": {"annotations": {"note": "of the services"}},
}
PEER = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gateways"}}}
ZONES = {
    "maxSkew": 1,
    "topologyKey": "topology.kubernetes.io/zone",
    "whenUnsatisfiable": "ScheduleAnyway",
}


def strategy(lab: Lab) -> Object:
    body = lab.get("deployment", "pair")
    assert body is not None
    value: Object = body["spec"]["strategy"]
    return value


def ports(lab: Lab) -> dict[str, str | None]:
    """Return the protocol of each port of the Service, by port name."""
    body = lab.get("service", "pair")
    assert body is not None
    return {port["name"]: port.get("appProtocol") for port in body["spec"]["ports"]}


def test_budget_rollout_and_tags_follow_the_spec(lab: Lab) -> None:
    tls = {"secretName": "pair-tls", "clientCA": {"name": "ca"}, "clientSecretName": "verifier"}
    serving = {"replicas": 2, "topologySpreadConstraints": [ZONES], "tls": tls}
    serve(lab, "pair", serving=serving, metadata=TAGS)

    def spare() -> bool:
        budget = lab.get("pdb", "pair") or {}
        return bool(budget.get("status", {}).get("disruptionsAllowed") == 1)

    until(spare, lambda: f"one pod to spare: {lab.describe('pair')}")
    for kind, tags in (("jobs", TAGS["jobs"]), ("services", TAGS["services"])):
        for item in lab.all(kind, names.MANAGED_BY):
            assert tags.get("labels", {}).items() <= item["metadata"]["labels"].items()
            notes = item["metadata"].get("annotations", {})
            assert tags.get("annotations", {}).items() <= notes.items()
    teams = {p["metadata"]["labels"].get("team") for p in lab.all("pods", names.CLAIM)}
    assert teams == {"search", "builders"}

    # A restart loads a renewed certificate; the operator does not revert its annotation.
    lab.kubectl("rollout", "restart", "deployment/pair")
    unwritten(lab, "pair")
    live = lab.get("deployment", "pair")
    assert live is not None
    notes = live["spec"]["template"]["metadata"]["annotations"]
    assert "kubectl.kubernetes.io/restartedAt" in notes

    assert ports(lab) == {"grpc": "tls", "metrics": None}
    lab.patch("specm", "pair", {"spec": {"serving": {"tls": None}}})
    plain = {"http": None, "grpc": None, "metrics": None}
    until(lambda: ports(lab) == plain, lambda: f"{ports(lab)}")

    lab.patch("specm", "pair", {"spec": {"serving": {"rollout": {"strategy": "Recreate"}}}})
    until(lambda: strategy(lab) == {"type": "Recreate"}, lambda: f"{strategy(lab)}")
    rolling = {"strategy": "RollingUpdate", "maxSurge": 2, "maxUnavailable": 1}
    lab.patch("specm", "pair", {"spec": {"serving": {"rollout": rolling}}})
    counts = {"maxSurge": 2, "maxUnavailable": 1}
    until(lambda: strategy(lab).get("rollingUpdate") == counts, lambda: f"{strategy(lab)}")

    lab.kubectl("scale", "specm", "pair", "--replicas=1")
    until(lambda: lab.missing("pdb", "pair"), "no budget of a pod alone")


def test_api_server_accepts_every_generated_field(lab: Lab) -> None:
    bodies = []
    for body in copy.deepcopy(generated("serving-operations").objects):
        if "." in body["apiVersion"].replace(".k8s.io", ""):
            continue
        body["metadata"]["namespace"] = lab.namespace
        bodies.append(body)
    kinds = {body["kind"] for body in bodies}
    assert {"Deployment", "PodDisruptionBudget", "HorizontalPodAutoscaler"} <= kinds
    assert kinds & OPTIONAL_KINDS.keys()
    flags = ("create", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-")
    output = lab.kubectl(*flags, stdin=yaml.safe_dump_all(bodies))
    assert len(output.splitlines()) == len(bodies)


def test_route_is_reported_created_and_deleted(lab: Lab) -> None:
    missing = {"gateway": {"parentRefs": [{"name": "public"}]}}
    serve(
        lab, "pair", networking={**missing, "networkPolicy": {"mode": "Enabled", "from": [PEER]}}
    )
    condition = lab.wait("pair", "RouteReady", "False", "GatewayApiMissing")
    assert "install the Gateway API" in condition["message"]
    # The operator has created the objects that it applies after the refused route.
    assert lab.get("networkpolicy", "pair")
    assert all(lab.get("networkpolicy", f"pair-{what}") for what in ("fetch", "build", "measure"))

    ingress = {"hosts": ["llm.example.com"], "className": "none"}
    change = {"gateway": None, "ingress": ingress, "service": {"type": "NodePort"}}
    lab.patch("specm", "pair", {"spec": {"networking": change}})
    until(lambda: lab.get("ingress", "pair"), lambda: lab.describe("pair"))
    lab.wait("pair", "RouteReady", "Unknown", "RoutePending")
    address = json.dumps({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}})
    argv = ("patch", "ingress", "pair", "--subresource=status", "--type=merge", "-p", address)
    lab.kubectl(*argv)
    lab.wait("pair", "RouteReady", "True", "RouteAccepted")

    lab.patch("specm", "pair", {"spec": {"networking": None}})
    until(lambda: lab.missing("ingress", "pair"), "no Ingress")
    for name in ("pair", "pair-fetch", "pair-build", "pair-measure"):
        until(partial(lab.missing, "networkpolicy", name), f"no NetworkPolicy {name}")
    service = lab.get("service", "pair")
    assert service is not None
    assert service["spec"]["type"] == "ClusterIP"
