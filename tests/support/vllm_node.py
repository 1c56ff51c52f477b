"""An installed vLLM for pods of the local node: an image without it, and a volume with it.

The volume is the installation itself, mounted read-only. An image would be a copy of 2.6 GB in
each of three image stores.
"""

from typing import Any

from cluster.handle import Node
from support.vllm_wheel import Installation

Object = dict[str, Any]

IMAGE = "localhost/specdec/vllm:dev"
DOCKERFILE = "tests/e2e/vllm.Dockerfile"
# Stage of the Dockerfile, and name of the volume and its claim.
NAME = "vllm"
# Where the image has a link to the packages.
_MOUNT = "/opt/vllm"


def volume(installation: Installation, namespace: str = "default") -> list[Object]:
    """Return the volume of an installation's packages, and the claim of it.

    The volume lacks the label of the cluster's volumes, which are emptied with their claims.
    """
    metadata = {"name": NAME}
    shared: Object = {"accessModes": ["ReadOnlyMany"], "storageClassName": NAME}
    size = {"storage": "3Gi"}
    folder = {"path": str(installation.site_packages), "type": "Directory"}
    of_volume: Object = {
        **shared,
        "capacity": size,
        "claimRef": {"namespace": namespace, "name": NAME},
        "hostPath": folder,
        "persistentVolumeReclaimPolicy": "Retain",
    }
    of_claim = {**shared, "resources": {"requests": size}, "volumeName": NAME}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": of_volume},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {**metadata, "namespace": namespace},
            "spec": of_claim,
        },
    ]


def load(node: Node) -> str:
    """Build the image if needed, load it into a node, and return its name."""
    return node.load(NAME, IMAGE, DOCKERFILE)


def serving() -> Object:
    """Return the fields of `spec.serving` that mount the packages."""
    return {
        "extraVolumes": [
            {"name": NAME, "persistentVolumeClaim": {"claimName": NAME, "readOnly": True}}
        ],
        "extraVolumeMounts": [{"name": NAME, "mountPath": _MOUNT, "readOnly": True}],
    }
