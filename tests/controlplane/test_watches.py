"""After a CRD is deleted and reinstalled, the operator watches it again or its probe fails."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cluster import ControlPlane
from controlplane import definitions
from controlplane.conftest import define, install, known
from controlplane.operating import ACCOUNT, Lab, Operator, until
from controlplane.pipeline import resource

pytestmark = pytest.mark.controlplane

DEFINITION = "speculativemodels.specdec.dev"
# One second between comparisons of the watches, instead of a minute. A comparison takes seconds on
# a busy machine: the pause after it is as long, instead of twenty times as long.
QUICK = {"SPECDEC_WATCH_CHECK_SECONDS": "1", "SPECDEC_WATCH_CHECK_PAUSE_FACTOR": "1"}


@pytest.fixture(scope="module")
def plane(bare: ControlPlane) -> ControlPlane:
    """Return the control plane without another operator, which would lose its CRD."""
    install(bare)
    return bare


def reaches(check: Callable[[], bool], operator: Operator, state: str) -> None:
    """Wait for a state; `state` names it in the error, which ends with the operator's log."""
    until(check, lambda: f"{state}: {operator.log_tail()}")


def restarting(operator: Operator, check: Callable[[], bool]) -> Callable[[], bool]:
    """Return a check that first restarts an ended or unhealthy operator, as the kubelet does."""

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
            accepted = restarting(operator, lambda: bool(lab.condition(name)))  # noqa: B023
            reaches(accepted, operator, f"a condition of {name}")
            plane.kubectl("delete", "crd", DEFINITION)
            if number % 2:
                until(lambda: not known(plane), "no definition")
            define(plane)
        lab.apply(resource("last"))
        reconciled = restarting(operator, lambda: bool(lab.condition("last")))
        reaches(reconciled, operator, "a reconcile")
        changed = {"spec": {"suspend": True}}
        lab.patch("specm", "last", changed)
        suspended = restarting(operator, lambda: lab.condition("last")["reason"] == "Suspended")
        reaches(suspended, operator, "a reconcile of a change")


def test_kind_that_is_installed_later_is_followed(plane: ControlPlane, tmp_path: Path) -> None:
    account = plane.service_account(*ACCOUNT)
    namespace = "watches-alone"
    # An operator of some namespaces may not read CRDs.
    alone = {**QUICK, "SPECDEC_NAMESPACES": namespace}
    operator = Operator(account, tmp_path / "operator.log", **alone)
    with Lab(plane, operator, namespace) as lab, operator:
        lab.apply(resource("pair"))
        lab.wait("pair", "Accepted")
        with definitions.installed(plane):
            reaches(lambda: listed(operator) > 0, operator, "a list of routes")
            assert operator.healthy() == 200, operator.log_tail()


def listed(operator: Operator) -> float:
    """Return the number of successful lists of HTTPRoutes."""
    labels = {"verb": "list", "kind": "HTTPRoute", "code": "200"}
    return operator.metric("specdec_api_requests_total", **labels)
