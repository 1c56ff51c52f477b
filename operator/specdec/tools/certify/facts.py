"""The GPUs of a cluster that the matrix can use: of one product, by node and in total.

`facts` reads plain node objects; `select` chooses the product that all entries run on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specdec.api import names
from specdec.api.matrix import matrix
from specdec.client.errors import BadRequestError
from specdec.desired.pod import GPU
from specdec.tools.certify.request import CertifyRequest

Json = dict[str, Any]
_LABELS = "nvidia.com/gpu"


@dataclass(frozen=True)
class Gpus:
    """The GPUs of one product.

    Attributes:
        product: value of the node label nvidia.com/gpu.product.
        per_node: the most that one node has for pods.
        total: of all nodes.
        memory_mib, compute_capability, driver: from the labels of the nodes; None without labels.
    """

    product: str
    per_node: int
    total: int
    memory_mib: int | None = None
    compute_capability: str | None = None
    driver: str | None = None


@dataclass(frozen=True)
class Facts:
    """What the nodes of a cluster report; `kubernetes` are the versions of their kubelets."""

    nodes: int = 0
    kubernetes: tuple[str, ...] = ()
    gpus: tuple[Gpus, ...] = ()

    def as_json(self) -> Json:
        """The facts by name."""
        return asdict(self)


def facts(nodes: Sequence[Mapping[str, Any]]) -> Facts:
    """The facts of schedulable nodes, without names and addresses."""
    usable = [node for node in nodes if not node.get("spec", {}).get("unschedulable")]
    products: dict[str, list[tuple[int, Mapping[str, str]]]] = {}
    for node in usable:
        count = int(node.get("status", {}).get("allocatable", {}).get(GPU, "0"))
        labels = node["metadata"].get("labels", {})
        if count:
            products.setdefault(labels.get(names.GPU_PRODUCT, ""), []).append((count, labels))
    versions = {node["status"].get("nodeInfo", {}).get("kubeletVersion", "") for node in usable}
    return Facts(
        nodes=len(usable),
        kubernetes=tuple(sorted(version for version in versions if version)),
        gpus=tuple(_gpus(product, listed) for product, listed in sorted(products.items())),
    )


def select(request: CertifyRequest, known: Facts | None) -> Gpus | None:
    """The GPUs of the run; None for a backend without GPUs.

    Args:
        request: may name the product, and the number where nodes cannot be read.
        known: None where the caller may not read nodes.

    Raises:
        BadRequestError: there are no GPUs, several products, or none of the given name.
    """
    if not request.support.on_gpus:
        return None
    if known is None:
        return _given(request)
    if not known.gpus:
        raise BadRequestError(
            f"no node of the cluster has {GPU}; install NVIDIA's device plugin, or add --backend "
            f"{_without_gpus()} to certify without GPUs"
        )
    if [gpus.product for gpus in known.gpus] == [""]:
        raise BadRequestError(
            f"the nodes with {GPU} have no label {names.GPU_PRODUCT}; install GPU feature "
            "discovery, or set the label"
        )
    products = {gpus.product: gpus for gpus in known.gpus if gpus.product}
    product = request.gpu_product or (next(iter(products)) if len(products) == 1 else None)
    if product is None:
        raise BadRequestError(
            f"the cluster has the GPUs {', '.join(products)}; select one with --gpu-product"
        )
    if product not in products:
        raise BadRequestError(
            f"--gpu-product is {product}, which no node has; the cluster has {', '.join(products)}"
        )
    return products[product]


def _without_gpus() -> str:
    """The backends that serve on CPUs."""
    rows = matrix().items()
    return " or ".join(str(name) for name, row in rows if row.served and not row.on_gpus)


def _given(request: CertifyRequest) -> Gpus:
    if request.gpu_product is None or request.gpus is None:
        raise BadRequestError(
            "you may not list nodes, so the GPUs are unknown; give --gpu-product, the node label "
            f"{names.GPU_PRODUCT}, and --gpus, the number of GPUs of a node"
        )
    return Gpus(request.gpu_product, request.gpus, request.gpus)


def _gpus(product: str, nodes: Sequence[tuple[int, Mapping[str, str]]]) -> Gpus:
    counts = [count for count, _ in nodes]
    labels = nodes[0][1]
    memory = labels.get(f"{_LABELS}.memory", "")
    major, minor = (labels.get(f"{_LABELS}.compute.{part}") for part in ("major", "minor"))
    driver = [labels.get(f"nvidia.com/cuda.driver.{part}") for part in ("major", "minor", "rev")]
    return Gpus(
        product,
        max(counts),
        sum(counts),
        int(memory) if memory.isdigit() else None,
        f"{major}.{minor}" if major and minor else None,
        ".".join(part for part in driver if part) or None,
    )
