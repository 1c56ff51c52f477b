"""The objects that the tool puts into its clusters."""

from collections.abc import Callable
from pathlib import Path

from cluster.api import Api, Object
from cluster.state import Options, State

Check = Callable[[], bool]

TINY_CLASS = "specdec-tiny"
TINY_BYTES = 16 * 1024 * 1024


def gpu_node(name: str, options: Options) -> Object:
    """Return a node for kwok that offers GPUs."""
    room = {"cpu": "64", "memory": "512Gi", "pods": "500", "ephemeral-storage": "1Ti"}
    if options.gpus:
        room["nvidia.com/gpu"] = str(options.gpus)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "type": "kwok",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "nvidia.com/gpu.product": options.gpu_product,
            },
        },
        "status": {"capacity": room, "allocatable": room},
    }


def volumes(state: State) -> list[Object]:
    """Return the cluster's volumes; on a real node, add a tiny volume that is soon full.

    A claim without a storage class binds to any other volume, with either access mode.
    """
    offered = [
        _volume(f"pv-{number:02d}", state.folder / "volumes", "2Gi", "")
        for number in range(1, state.options.volumes + 1)
    ]
    if state.options.kind == "node":
        offered.append(_volume("pv-tiny", state.folder / "volumes", "2Gi", TINY_CLASS))
    return offered


def _volume(name: str, folder: Path, size: str, storage_class: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "local-cluster"}},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": storage_class,
            "hostPath": {"path": str(folder / name), "type": "Directory"},
        },
    }


def dns_role() -> list[Object]:
    """Return the role with the permissions of CoreDNS, and its binding."""
    rules = [
        {
            "apiGroups": [""],
            "resources": ["services", "pods", "namespaces"],
            "verbs": ["list", "watch"],
        },
        {
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["list", "watch"],
        },
    ]
    kind = "rbac.authorization.k8s.io"
    reference = {"apiGroup": kind, "kind": "ClusterRole", "name": "local-cluster-dns"}
    subject = {"apiGroup": kind, "kind": "User", "name": "coredns"}
    metadata = {"name": "local-cluster-dns"}
    version = f"{kind}/v1"
    return [
        {"apiVersion": version, "kind": "ClusterRole", "metadata": metadata, "rules": rules},
        {
            "apiVersion": version,
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": reference,
            "subjects": [subject],
        },
    ]


def ready_nodes(api: Api) -> int:
    """Return the number of nodes whose condition Ready is True."""
    nodes = api.call("GET", "/api/v1/nodes")["items"]
    return sum(
        condition["type"] == "Ready" and condition["status"] == "True"
        for node in nodes
        for condition in node.get("status", {}).get("conditions", [])
    )


def gpus_offered(api: Api, node: str) -> int:
    """Return how many GPUs the node offers to pods."""
    status = api.call("GET", f"/api/v1/nodes/{node}").get("status", {})
    return int(status.get("allocatable", {}).get("nvidia.com/gpu", "0"))
