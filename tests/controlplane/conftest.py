"""Fixtures: the control planes that tests of this folder share, and the operator as a process."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster import ClusterError, ControlPlane
from controlplane.operating import ACCOUNT, Lab, Operator, until

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="package")
def control_plane() -> Iterator[ControlPlane]:
    """Yield a control plane with simulated pods; a test decides when and how Jobs end."""
    with ControlPlane(f"pytest-{os.getpid()}", hold_jobs=True) as plane:
        define(plane)
        yield plane


@pytest.fixture(scope="package")
def bare() -> Iterator[ControlPlane]:
    """Yield a control plane with the CRD and without an operator.

    test_watches runs last: it starts operators on this control plane, and reinstalls the CRD.
    """
    with ControlPlane(f"bare-{os.getpid()}", kwok=False) as plane:
        define(plane)
        yield plane


def define(plane: ControlPlane) -> None:
    definition = str(ROOT / "crds" / "speculativemodels.yaml")
    plane.kubectl("apply", "--server-side", "-f", definition)
    until(lambda: known(plane), "a known definition")


def known(plane: ControlPlane) -> bool:
    """Return whether the API server serves the kind, as it does a moment after it got the CRD."""
    try:
        plane.kubectl("get", "specm", "-n", "default")
    except ClusterError:
        return False
    return True


@pytest.fixture(scope="package")
def installed(control_plane: ControlPlane) -> ControlPlane:
    install(control_plane)
    return control_plane


def install(plane: ControlPlane) -> None:
    """Install manifests/install without the Deployment: the operator runs as a local process."""
    rendered = plane.kubectl("kustomize", str(ROOT / "manifests" / "install"))
    objects = [o for o in yaml.safe_load_all(rendered) if o["kind"] != "Deployment"]
    plane.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(objects))


@pytest.fixture(scope="package")
def operator(
    installed: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    """Yield the operator, which has only the permissions of its shipped role."""
    account = installed.service_account(*ACCOUNT)
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    with Operator(account, log) as process:
        yield process


@pytest.fixture
def lab(operator: Operator, installed: ControlPlane) -> Iterator[Lab]:
    """Yield a new namespace for the test, which the operator watches."""
    with Lab(installed, operator) as lab:
        yield lab
