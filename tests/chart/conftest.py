"""Helm, and one control plane with simulated pods for the folder."""

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
    """Helm that knows no cluster."""
    binaries.ensure(["helm", "kubectl"], report)
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="package")
def plane() -> Iterator[ControlPlane]:
    """A cluster with the operator's namespace, restricted, and two more to watch."""
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
            # The definitions of the Prometheus operator, of the pinned version.
            folder = binaries.source("monitoring", MONITORING) / "example/prometheus-operator-crd"
            definition = folder / f"monitoring.coreos.com_{kind}.yaml"
            plane.kubectl("apply", "--server-side", "-f", str(definition))
        yield plane


@pytest.fixture(scope="package")
def live(helm: Helm, plane: ControlPlane) -> Helm:
    """Helm as the cluster's administrator."""
    return Helm(helm.home, plane.kubeconfig)


@pytest.fixture
def release(live: Helm) -> Iterator[Helm]:
    """Helm; what a test leaves of the release is taken away, and the definition is kept."""
    yield live
    uninstall(live)
