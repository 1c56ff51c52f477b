"""What a value set shows in: parts of the rendered objects."""

from collections.abc import Callable

from chart.helm import Object, single

Shows = Callable[[list[Object]], bool]


def pod(objects: list[Object]) -> Object:
    """The operator's pod template."""
    template: Object = single(objects, "Deployment")["spec"]["template"]
    return template


def spread(objects: list[Object]) -> list[Object]:
    """How the operator's pods are spread."""
    constraints: list[Object] = pod(objects)["spec"]["topologySpreadConstraints"]
    return constraints


def policy(objects: list[Object]) -> Object:
    """The rules of the network policy."""
    spec: Object = single(objects, "NetworkPolicy")["spec"]
    return spec


def namespaces(objects: list[Object], kind: str) -> set[str]:
    return {o["metadata"]["namespace"] for o in objects if o["kind"] == kind}


def names(objects: list[Object], kind: str) -> set[str]:
    return {o["metadata"]["name"] for o in objects if o["kind"] == kind}


def named(objects: list[Object], kind: str, name: str) -> Object:
    (only,) = [o for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return only
