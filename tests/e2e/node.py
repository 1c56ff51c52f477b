"""The node of this layer, with the operator, the model pair and a claim to share."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cluster import binaries
from cluster.handle import Node
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
    """Yield a node without GPUs, with operator, pair and a shared claim; `keep` keeps it."""
    # The node's audit log records the operator's requests to the API server.
    account = f"system:serviceaccount:{':'.join(ACCOUNT)}"
    with Node(name, keep=keep, gpus=0, audited=account) as node:
        environment = {
            "KUBECONFIG": str(node.kubeconfig),
            "KUBECACHEDIR": str(node.state.folder / "kubectl-cache"),
        }
        kubectl = Kubectl(str(binaries.path("kubectl")), environment)
        install(node, kubectl)
        story.seed_pair(kubectl)
        kubectl("apply", "-f", "-", given=json.dumps(_CLAIM))
        yield World(node, kubectl)
