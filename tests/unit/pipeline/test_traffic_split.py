"""A route with a split: the other resource gets its share of requests while it serves."""

from typing import Any

import pytest

from specdec.tools.dry_run.other_resources import other_resource
from support.simulated_cluster import World, resource

TAKEN = {"conditions": [{"type": "Accepted", "status": "True"}]}
REFUSED = {"conditions": [{"type": "Accepted", "status": "False", "message": "no such listener"}]}
ROUTE = ("HTTPRoute", "pair")


def routed(percent: int = 10, peer: dict[str, Any] | None = None) -> World:
    """Return a serving resource whose route sends this percentage of requests to `next`."""
    split = {"modelRef": {"name": "next"}, "percent": percent}
    gateway = {"parentRefs": [{"name": "public"}], "split": split}
    world = World(resource(networking={"gateway": gateway}))
    world.peer = peer
    world.settle()
    reconcile(world, {"parents": [TAKEN]})
    return world


def reconcile(world: World, route_status: dict[str, Any] | None = None) -> None:
    """Reconcile, after the Gateway has set the status of the route if one is given."""
    if route_status is not None:
        world.optional_objects[ROUTE]["status"] = route_status
    world.step()


def shares(world: World) -> dict[str, int | None]:
    """Return the weights of the route by Service."""
    (rule,) = world.optional_objects[ROUTE]["spec"]["rules"]
    return {backend["name"]: backend.get("weight") for backend in rule["backendRefs"]}


def route_ready(world: World) -> tuple[str, str, str]:
    condition = world.condition("RouteReady")
    assert world.condition("Ready")["status"] == "True", "a split held the service back"
    return condition["status"], condition["reason"], condition["message"]


SERVES, BUILDS = other_resource(ready=True), other_resource(ready=False)
CHANGED = {**SERVES, "metadata": {"name": "next", "generation": 2}}
ALL, PARTS = {"pair": None}, {"pair": 90, "next": 10}


def serving(options: dict[str, Any]) -> dict[str, Any]:
    """Return the other resource, Ready, with these serving options."""
    return {**SERVES, "spec": {**SERVES.get("spec", {}), "serving": options}}


def test_ready_resource_gets_its_share() -> None:
    world = routed(peer=SERVES)
    assert shares(world) == PARTS
    status, reason, message = route_ready(world)
    assert (status, reason) == ("True", "RouteAccepted")
    assert message.endswith("10 % of the requests go to next")


@pytest.mark.parametrize(
    ("peer", "expected", "text"),
    [
        (None, "SplitTargetMissing", "SpeculativeModel next of networking.gateway.split does not"),
        ({"metadata": {"name": "next"}}, "SplitWaits", "next is not Ready (no status yet)"),
        # Its pods are ready but its Gate is closed: the split does not start.
        (BUILDS, "SplitWaits", "next is not Ready (Building)"),
        # Its condition Ready belongs to an earlier spec.
        (CHANGED, "SplitWaits", "next is not Ready"),
        # A route sends requests to the HTTP port, which the Services of these resources lack.
        (serving({"http": "HealthOnly"}), "SplitWaits", "next serves no HTTP"),
        (serving({"tls": {"secretName": "next-tls"}}), "SplitWaits", "next serves no HTTP"),
        (
            {**SERVES, "metadata": {"name": "next", "deletionTimestamp": "2026-01-02T03:04:05Z"}},
            "SplitTargetMissing",
            "does not exist",
        ),
    ],
)
def test_resource_that_does_not_serve_gets_no_share(
    peer: dict[str, Any] | None, expected: str, text: str
) -> None:
    world = routed(percent=100, peer=peer)
    assert shares(world) == ALL
    status, reason, message = route_ready(world)
    assert (status, reason) == ("Unknown", expected)
    assert text in message
    assert message.endswith("every request goes to pair")


def test_a_share_begins_when_the_other_becomes_ready() -> None:
    world = routed(peer=BUILDS)
    world.peer = SERVES
    reconcile(world)
    assert shares(world) == PARTS
    assert route_ready(world)[1] == "RouteAccepted"


@pytest.mark.parametrize("peer", [BUILDS, CHANGED])
def test_share_stays_while_the_other_has_ready_pods(peer: dict[str, Any]) -> None:
    world = routed(peer=SERVES)
    world.peer = peer
    reconcile(world)
    assert shares(world) == PARTS
    assert route_ready(world)[1] == "RouteAccepted"


@pytest.mark.parametrize(
    "peer", [None, other_resource(ready=False, pods=0), {**BUILDS, "spec": {"suspend": True}}]
)
def test_share_ends_when_the_other_stops_serving(peer: dict[str, Any] | None) -> None:
    world = routed(peer=SERVES)
    world.peer = peer
    reconcile(world)
    assert shares(world) == ALL
    # The split starts again only when the other resource is Ready again.
    world.peer = BUILDS
    reconcile(world)
    assert shares(world) == ALL


def test_refused_route_is_reported_before_the_split() -> None:
    world = routed(peer=None)
    reconcile(world, {"parents": [REFUSED]})
    assert route_ready(world)[1:] == ("RouteNotAccepted", "HTTPRoute pair: no such listener")


def test_split_of_zero_percent_waits_for_nothing() -> None:
    world = routed(percent=0, peer=None)
    assert shares(world) == ALL
    assert route_ready(world)[1] == "RouteAccepted"


def test_suspended_resource_still_routes_to_the_other() -> None:
    world = routed(percent=100, peer=SERVES)
    world.spec["suspend"] = True
    reconcile(world)
    assert shares(world) == {"pair": 0, "next": 100}
