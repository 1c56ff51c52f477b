"""Definitions that are deleted and installed again leave no operator deaf and alive."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cluster import ControlPlane
from controlplane import definitions
from controlplane.conftest import define, install, known
from controlplane.operating import ACCOUNT, Lab, Object, Operator, until
from controlplane.pipeline import resource
from specdec.api import names

pytestmark = pytest.mark.controlplane

DEFINITION = "speculativemodels.specdec.dev"
# A second between comparisons instead of a minute.
QUICK = {"SPECDEC_WATCH_CHECK_SECONDS": "1"}


@pytest.fixture(scope="module")
def plane(bare: ControlPlane) -> ControlPlane:
    """The one on which no other operator runs: it would lose its definition."""
    install(bare)
    return bare


def tended(operator: Operator, check: Callable[[], bool]) -> Callable[[], bool]:
    """The check, with restarts like the kubelet's: of an operator that ended or is unhealthy."""

    def checked() -> bool:
        if operator.ended():
            operator.start()
        elif operator.healthy() == 500:
            operator.stop()
            operator.start()
        return check()

    return checked


def test_resource_of_a_reinstalled_definition_is_reconciled(
    plane: ControlPlane, tmp_path: Path
) -> None:
    account = plane.service_account(*ACCOUNT)
    with (
        Operator(account, tmp_path / "operator.log", **QUICK) as operator,
        Lab(plane, operator) as lab,
    ):
        for number in range(4):
            name = f"pair-{number}"
            lab.apply(resource(name))
            until(tended(operator, lambda: bool(lab.condition(name))), lambda: operator.log_tail())  # noqa: B023
            plane.kubectl("delete", "crd", DEFINITION)
            if number % 2:
                until(lambda: not known(plane), "no definition")
            define(plane)
        lab.apply(resource("last"))
        reconciled = tended(operator, lambda: bool(lab.condition("last")))
        until(reconciled, lambda: f"a reconcile: {operator.log_tail()}")
        changed = {"spec": {"suspend": True}}
        lab.patch("specm", "last", changed)
        suspended = tended(operator, lambda: lab.condition("last")["reason"] == "Suspended")
        until(suspended, lambda: f"a reconcile of a change: {operator.log_tail()}")


def route(lab: Lab) -> Object:
    """A child of the resource of a kind that came after the operator had started."""
    body = lab.get("specm", "pair")
    assert body is not None
    owner = {key: body[key] for key in ("apiVersion", "kind")}
    owner |= {"name": "pair", "uid": body["metadata"]["uid"]}
    labels = {names.MANAGED_BY: names.MANAGER, names.MODEL: "pair"}
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "pair", "labels": labels, "ownerReferences": [owner]},
        "spec": {},
    }


def test_probe_fails_until_restart_for_a_kind_without_a_watch(
    plane: ControlPlane, tmp_path: Path
) -> None:
    account = plane.service_account(*ACCOUNT)
    namespace = "watches-alone"
    # An operator of some namespaces may not read definitions: it knows those of its start.
    scope = ("-n", namespace)
    alone = {**QUICK, "SPECDEC_NAMESPACES": namespace}
    operator = Operator(account, tmp_path / "operator.log", scope, **alone)
    with Lab(plane, operator, namespace) as lab, operator:
        lab.apply(resource("pair"))
        lab.wait("pair", "Accepted")
        with definitions.installed(plane):
            lab.apply(route(lab))
            until(
                lambda: operator.healthy() == 500, lambda: f"unhealthy: {operator.log_tail()}", 120
            )
            operator.stop()
            operator.start()
            # Longer than the detection of the missing watch took.
            checks = operator.metric("specdec_api_requests_total", verb="list", kind="HTTPRoute")

            def checked() -> bool:
                assert operator.healthy() == 200, operator.log_tail()
                asked = {"verb": "list", "kind": "HTTPRoute"}
                return operator.metric("specdec_api_requests_total", **asked) > checks + 10

            until(checked, lambda: f"checks of routes: {operator.log_tail()}")
            lab.kubectl("delete", "httproute", "pair")
