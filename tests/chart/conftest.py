"""Helm, and a control plane with simulated pods, which all tests of this folder share."""

import os
from collections.abc import Iterator

import pytest
import yaml

from chart.helm import NAMESPACE, Helm
from chart.touring import USER, uninstall
from cluster import ControlPlane, binaries
from cluster.progress import report

TEAMS = ("team-a", "team-b")
MONITORING = "github.com/prometheus-operator/prometheus-operator"


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Return Helm without a cluster."""
    binaries.ensure(["helm", "kubectl"], report)
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="package")
def plane() -> Iterator[ControlPlane]:
    """Yield a cluster with the restricted namespace of the operator and two others to watch."""
    level = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    namespaces = [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": level if name == NAMESPACE else {}},
        }
        for name in (NAMESPACE, *TEAMS)
    ]
    name = f"pytest-chart-{os.getpid()}"
    with ControlPlane(name, hold_jobs=True, nodes=4, audited=USER) as plane:
        plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(namespaces))
        for kind in ("podmonitors", "prometheusrules", "servicemonitors"):
            # The CRDs of the pinned version of the Prometheus operator.
            folder = binaries.source("monitoring", MONITORING) / "example/prometheus-operator-crd"
            definition = folder / f"monitoring.coreos.com_{kind}.yaml"
            plane.kubectl("apply", "--server-side", "-f", str(definition))
        yield plane


@pytest.fixture(scope="package")
def live(helm: Helm, plane: ControlPlane) -> Helm:
    """Return Helm with the login of the cluster's administrator."""
    return Helm(helm.home, plane.kubeconfig)


@pytest.fixture
def release(live: Helm) -> Iterator[Helm]:
    """Yield Helm; uninstall what a test leaves of the release, and keep the CRD."""
    yield live
    uninstall(live)
