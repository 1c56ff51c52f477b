"""One node for the whole layer: images, operator, the model pair and a claim to share."""

import os
import sys
from collections.abc import Iterator

import pytest

from chart.helm import INSTALL, NAMESPACE, RELEASE, Helm
from cluster import binaries
from cluster.handle import Node
from cluster.processes import TIMEOUT
from cluster.progress import report
from demo.kubectl import Kubectl
from demo.machine import IMAGES
from e2e.checkpoints import Copies, copying
from e2e.node import up
from e2e.record import Record, recording
from e2e.released import Release, line, release
from e2e.world import World, model

NAME = "specdec-e2e"
KEEP = os.environ.get("SPECDEC_E2E_KEEP") == "1"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of this layer; skip them with one message where no node can run."""
    ours = [item for item in items if "e2e" in item.path.parts]
    for item in ours:
        item.add_marker(pytest.mark.e2e)
    if ours and (sys.platform != "linux" or os.geteuid() != 0):
        why = f"{len(ours)} tests on a real node need Linux and root: run `sudo make e2e`"
        ours[0].add_marker(pytest.mark.skip(reason=why))
        config.hook.pytest_deselected(items=ours[1:])
        items[:] = [item for item in items if item not in ours[1:]]


@pytest.fixture(scope="package")
def world() -> Iterator[World]:
    """Yield the node with the operator; SPECDEC_E2E_KEEP=1 keeps it for the next run."""
    with up(NAME, install, keep=KEEP) as made:
        yield made


def install(node: Node, kubectl: Kubectl) -> None:
    """Install the operator from a registry by README's commands; the demo uses the manifests."""
    binaries.ensure(["helm"], report)
    for target, tag in IMAGES.items():
        node.push(target, tag)
    place = ("-n", NAMESPACE)
    kept = kubectl.get("deployment", RELEASE, *place, "--ignore-not-found")
    with release(node) as run:
        if kept is None:
            by_kustomize(run, kubectl)
        kubectl("apply", "--server-side", "-f", str(INSTALL / "namespace.yaml"))
        helm = line("helm", "install", has="oci://")
        if kept is not None:
            helm[1] = "upgrade"
        run(helm, TIMEOUT)
    if kept is not None:
        # The tag does not change with the image, so only a restart uses the new image.
        kubectl("rollout", "restart", f"deployment/{RELEASE}", *place)
        rolled_out(kubectl)
    Helm(node.state.folder / "helm", node.kubeconfig)("test", RELEASE, *place, TIMEOUT)


def by_kustomize(run: Release, kubectl: Kubectl) -> None:
    """Install the operator by README's kustomize command, wait for it, and remove it."""
    apply = line("kubectl", "apply", has="manifests/install?")
    run(apply)
    rolled_out(kubectl)
    run(["kubectl", "delete", "-k", apply[-1], TIMEOUT])


def rolled_out(kubectl: Kubectl) -> None:
    """Wait until the operator is available."""
    status = ("rollout", "status", f"deployment/{RELEASE}", "-n", NAMESPACE)
    kubectl(*status, TIMEOUT)


@pytest.fixture(scope="package")
def record(world: World) -> Iterator[Record]:
    """Yield a record of the operator's statuses and requests since the first test began."""
    with recording(world) as made:
        yield made


@pytest.fixture(scope="package")
def gpus(world: World) -> None:
    """Let the node offer simulated GPUs; it offers none before the first test that needs them."""
    world.node.offer_gpus(8)


@pytest.fixture(autouse=True)
def _clean(world: World, record: Record) -> Iterator[None]:
    yield
    world.clean()


@pytest.fixture
def copies(world: World) -> Iterator[Copies]:
    """Yield a maker of checkpoint copies, which a test may change; remove them after the test."""
    with copying(world) as made:
        yield made


@pytest.fixture
def served(world: World) -> str:
    """Return the resource that many tests share; reset its spec before each test."""
    body = model("served", suspend=False, serving={"replicas": 1})
    world.apply(body, keep=True)
    world.ready("served")
    world.wait(
        lambda: len(world.pods("served")) == 1,
        lambda: "served has more than one pod",
    )
    return "served"
