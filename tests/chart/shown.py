"""Parts of the rendered objects, in which value sets have an effect."""

from collections.abc import Callable

from chart.helm import Object, single

Shows = Callable[[list[Object]], bool]


def pod(objects: list[Object]) -> Object:
    """Return the operator's pod template."""
    template: Object = single(objects, "Deployment")["spec"]["template"]
    return template


def spread(objects: list[Object]) -> list[Object]:
    """Return the topology spread constraints of the operator's pods."""
    constraints: list[Object] = pod(objects)["spec"]["topologySpreadConstraints"]
    return constraints


def policy(objects: list[Object]) -> Object:
    """Return the spec of the network policy."""
    spec: Object = single(objects, "NetworkPolicy")["spec"]
    return spec


def namespaces(objects: list[Object], kind: str) -> set[str]:
    return {o["metadata"]["namespace"] for o in objects if o["kind"] == kind}


def names(objects: list[Object], kind: str) -> set[str]:
    return {o["metadata"]["name"] for o in objects if o["kind"] == kind}


def named(objects: list[Object], kind: str, name: str) -> Object:
    (only,) = [o for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return only
