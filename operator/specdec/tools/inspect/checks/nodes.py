"""Judge the nodes of a cluster: the images that they can run, their GPUs and their storage."""

from collections.abc import Iterator

from specdec.api import names
from specdec.api.matrix import matrix
from specdec.api.released import reference_beside
from specdec.desired.pod import GPU
from specdec.tools.inspect.checks.facts import Check, Facts, Json, Result, Unread, containers

_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
# Kubelets list this many images at most, by default.
_LISTED_IMAGES = 50


def images(facts: Facts) -> Check:
    """Whether the nodes have the operator's images of `localhost`, which no registry has."""
    name = "images"
    if isinstance(facts.operators, Unread):
        message = "the operator's Deployment was not read, and so its images are unknown"
        return Check(name, Result.WARNING, message, "ask for the right to list Deployments")
    named = sorted({image for item in facts.operators for image in _named_images(item)})
    local = [image for image in named if _is_local(image)]
    if not local:
        return Check(name, Result.OK, ", ".join(named) or "there is no operator")
    shown, fix = ", ".join(local), "push the images to a registry, and set the chart's values"
    workers = [] if isinstance(facts.nodes, Unread) else _workers(facts.nodes)
    if not workers:
        message = f"{shown}: only nodes on which these images were loaded can run them"
        return Check(name, Result.WARNING, message, fix)
    lacking = [node for node in workers if not _has_images(node, local)]
    if not lacking:
        return Check(name, Result.OK, f"every node has loaded {shown}")
    others = ", ".join(node["metadata"]["name"] for node in lacking[:3])
    message = f"{shown}: no registry has these images, and node {others} has not loaded them"
    if all(len(node["status"].get("images", ())) >= _LISTED_IMAGES for node in lacking):
        message = f"{shown}: node {others} does not list all its images, and may lack these"
        return Check(name, Result.WARNING, message, fix)
    return Check(name, Result.PROBLEM, message, f"{fix}; on a development node, load them")


def _named_images(deployment: Json) -> Iterator[str]:
    """The images of a Deployment's pods, and the Reference server's beside the operator's."""
    for container in containers(deployment):
        variables = {item["name"]: item.get("value", "") for item in container.get("env", ())}
        image = variables.get("SPECDEC_OPERATOR_IMAGE") or container["image"]
        reference = variables.get("SPECDEC_REFERENCE_IMAGE") or reference_beside(image)
        yield from (container["image"], image, reference)


def _is_local(image: str) -> bool:
    host = image.partition("/")[0].partition(":")[0]
    return host == "localhost" or host.startswith("127.")


def _has_images(node: Json, images: list[str]) -> bool:
    listed = {name for item in node["status"].get("images", ()) for name in item.get("names", ())}
    return listed.issuperset(images)


def gpus(facts: Facts) -> Check:
    """Whether nodes have GPUs whose product is known."""
    if isinstance(facts.nodes, Unread):
        fix = "ask for the right to list nodes, or ask which GPUs they have"
        return Check("GPUs", Result.WARNING, facts.nodes.message, fix)
    counts = [(node, _gpu_count(node)) for node in _schedulable(facts.nodes)]
    with_gpus = [(node, count) for node, count in counts if count]
    if not with_gpus:
        served = (str(name) for name, row in matrix().items() if row.served and not row.on_gpus)
        message = f"no schedulable node has {GPU}: only the backend {' or '.join(served)} runs"
        return Check("GPUs", Result.WARNING, message, "install NVIDIA's GPU operator")
    products: dict[str, int] = {}
    for node, count in with_gpus:
        product = node["metadata"].get("labels", {}).get(names.GPU_PRODUCT, "")
        products[product] = products.get(product, 0) + count
    listed = ", ".join(
        f"{count} x {product or '?'}" for product, count in sorted(products.items())
    )
    if "" in products:
        message = f"{listed}: a node with {GPU} has no label {names.GPU_PRODUCT}"
        fix = "install GPU feature discovery, or set the label"
        return Check("GPUs", Result.WARNING, message, fix)
    return Check("GPUs", Result.OK, listed)


def storage(facts: Facts) -> Check:
    """Whether claims without a storage class are bound."""
    name, classes = "storage", facts.storage_classes
    own = "set spec.storage.existingClaim of each resource"
    if isinstance(classes, Unread):
        return Check(name, Result.WARNING, classes.message, f"ask which classes exist, or {own}")
    if not classes:
        return Check(name, Result.WARNING, "there is no storage class", f"create one, or {own}")
    listed = ", ".join(item["metadata"]["name"] for item in classes)
    default = [item["metadata"]["name"] for item in classes if _is_default(item)]
    if not default:
        message = f"no storage class is the default; there are {listed}"
        return Check(name, Result.WARNING, message, "set spec.storage.storageClassName")
    message = (
        f"{default[0]} is the default class; a cluster does not list the access modes of a class, "
        "so ask whether it offers ReadWriteMany before pods use several nodes"
    )
    return Check(name, Result.OK, message)


def _is_default(storage_class: Json) -> bool:
    annotations: Json = storage_class["metadata"].get("annotations", {})
    return bool(annotations.get(_DEFAULT_CLASS) == "true")


def _gpu_count(node: Json) -> int:
    return int(node.get("status", {}).get("allocatable", {}).get(GPU, "0"))


def _schedulable(nodes: list[Json]) -> list[Json]:
    return [node for node in nodes if not node.get("spec", {}).get("unschedulable")]


def _workers(nodes: list[Json]) -> list[Json]:
    """Schedulable nodes that take ordinary pods."""
    return [
        node
        for node in _schedulable(nodes)
        if _CONTROL_PLANE not in {taint["key"] for taint in node["spec"].get("taints", ())}
    ]
