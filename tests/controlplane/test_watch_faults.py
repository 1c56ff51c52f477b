"""A fault of the API server ends the watches, and not the operator's process."""

from collections.abc import Iterator

import pytest
import yaml

from cluster import ControlPlane
from controlplane.conftest import install
from controlplane.faults import Faults
from controlplane.operating import ACCOUNT, Lab, Object, Operator, until
from controlplane.pipeline import resource

pytestmark = pytest.mark.controlplane

NAMESPACE, LEASE = ACCOUNT[0], "faults"
# Only a watch reports a change: the other ways to notice it come after the test.
SETTINGS = {
    "SPECDEC_WATCH_CHECK_SECONDS": "86400",
    "SPECDEC_RESYNC_SECONDS": "86400",
    "SPECDEC_LEASE": f"{NAMESPACE}/{LEASE}",
    # Longer than a fault, because the injected 401 concerns its renewal too.
    "SPECDEC_LEASE_SECONDS": "300",
}
FAULTS = ("unauthorized", "error-500", "error-429", "outdated", "unavailable")


@pytest.fixture(scope="module")
def plane(bare: ControlPlane) -> ControlPlane:
    install(bare)
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": LEASE, "namespace": NAMESPACE},
        "rules": [{**rule, "verbs": ["get", "create", "update"]}],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": LEASE, "namespace": NAMESPACE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": LEASE},
        "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": ACCOUNT[1]}],
    }
    bare.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([role, binding]))
    return bare


@pytest.fixture(scope="module")
def faults(plane: ControlPlane) -> Iterator[Faults]:
    with Faults(plane.service_account(*ACCOUNT)).serving() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def operator(
    plane: ControlPlane, faults: Faults, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    folder = tmp_path_factory.mktemp("faults")
    kubeconfig = faults.kubeconfig(folder / "kubeconfig")
    with Operator(kubeconfig, folder / "operator.log", **SETTINGS) as process:
        yield process


def lease(plane: ControlPlane) -> Object:
    spec: Object = plane.get("lease", LEASE, "-n", NAMESPACE)["spec"]
    return {key: spec[key] for key in ("holderIdentity", "acquireTime", "leaseTransitions")}


@pytest.mark.parametrize("fault", FAULTS)
def test_operator_survives_a_fault_of_its_watches(
    fault: str, plane: ControlPlane, faults: Faults, operator: Operator
) -> None:
    """With kopf's own process, each of these faults ended the operator.

    kopf repeats a watch with the answer 503 for 54 s before it ends. The other faults end it at
    once.
    """
    with Lab(plane, operator) as lab:
        lab.apply(resource("before"))
        lab.wait("before", "Accepted")
        holder, process = lease(plane), operator.pid
        restarts = operator.metric("specdec_watch_restarts_total")

        faults.inject(fault)
        until(
            lambda: (
                operator.healthy() == 200
                and operator.metric("specdec_watch_restarts_total") > restarts
            ),
            lambda: f"a restart of the watches: {operator.log_tail()}",
        )
        faults.inject(None)

        lab.apply(resource("after"))
        lab.wait("after", "Accepted")
        lab.patch("specm", "before", {"spec": {"suspend": True}})
        lab.wait("before", "Ready", "False", "Suspended")
        assert (lease(plane), operator.pid, operator.healthy()) == (holder, process, 200)
    assert "Traceback" not in operator.log.read_text()
