"""The node of this layer: the first process of a run starts it, and the last one stops it."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster import binaries, folders, lifecycle
from cluster.handle import Node
from cluster.progress import report
from cluster.sharing import Sharing, run
from controlplane.operating import ACCOUNT
from demo import story
from demo.kubectl import Kubectl
from demo.machine import IMAGES
from e2e.world import SHARED, World

_CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": SHARED},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "",
    },
}


def _manifests(node: Node, kubectl: Kubectl) -> None:
    for target, tag in IMAGES.items():
        node.load(target, tag)
    story.install(kubectl)


@contextmanager
def up(
    name: str, install: Callable[[Node, Kubectl], None] = _manifests, *, keep: bool = False
) -> Iterator[World]:
    """Yield a node without GPUs, with the operator, the pair and a shared claim; `keep` keeps it.

    Processes of one run share the node. The first process uses the namespace `default`, and each
    other process uses a namespace of its own.
    """
    sharing = Sharing(name)
    with sharing.joining() as others:
        try:
            node = _started(name, anew=not (others or keep), keep=keep)
            if not others:
                install(node, _kubectl(node, node.kubeconfig))
        except BaseException:
            _stop(name, others, keep=keep)
            raise
    try:
        yield _world(node, f"e2e-{others}" if others else "default")
    finally:
        with sharing.leaving() as others:
            _stop(name, others, keep=keep)


def _started(name: str, *, anew: bool, keep: bool) -> Node:
    # The node's audit log records the operator's requests to the API server.
    account = f"system:serviceaccount:{':'.join(ACCOUNT)}"
    if anew:
        lifecycle.down(name, report)
    owner = None if keep else run()
    return Node(name, keep=True, owner=owner, gpus=0, audited=account).__enter__()


def _stop(name: str, others: int, *, keep: bool) -> None:
    if not (others or keep):
        lifecycle.down(name, report)


def _world(node: Node, namespace: str) -> World:
    """Return a namespace with the pair and a shared claim."""
    config = json.loads(node.kubeconfig.read_text("utf-8"))
    config["contexts"][0]["context"]["namespace"] = namespace
    kubeconfig = node.state.folder / f"{namespace}.kubeconfig"
    folders.write(kubeconfig, json.dumps(config), 0o600)
    kubectl = _kubectl(node, kubeconfig)
    if kubectl.get("namespace", namespace) is None:
        kubectl("create", "namespace", namespace)
    story.seed_pair(kubectl)
    kubectl("apply", "-f", "-", given=json.dumps(_CLAIM))
    return World(node, kubectl, kubeconfig, namespace)


def _kubectl(node: Node, kubeconfig: Path) -> Kubectl:
    environment = {
        "KUBECONFIG": str(kubeconfig),
        "KUBECACHEDIR": str(node.state.folder / "kubectl-cache"),
    }
    return Kubectl(str(binaries.path("kubectl")), environment)
