"""A route in parts: the other resource gets its share while it serves, and the route says so."""

from typing import Any

import pytest

from golden.world import World, resource
from specdec.dry_run.simulated_cluster import other_resource

TAKEN = {"conditions": [{"type": "Accepted", "status": "True"}]}
REFUSED = {"conditions": [{"type": "Accepted", "status": "False", "message": "no such listener"}]}
ROUTE = ("HTTPRoute", "pair")


def routed(percent: int = 10, peer: dict[str, Any] | None = None) -> World:
    """A served resource whose route sends some requests to `next`."""
    split = {"modelRef": {"name": "next"}, "percent": percent}
    gateway = {"parentRefs": [{"name": "public"}], "split": split}
    world = World(resource(networking={"gateway": gateway}))
    world.peer = peer
    world.settle()
    look(world, {"parents": [TAKEN]})
    return world


def look(world: World, said: dict[str, Any] | None = None) -> None:
    """One more reconcile, the Gateway having said something."""
    if said is not None:
        world.extras[ROUTE]["status"] = said
    world.step()


def shares(world: World) -> dict[str, int | None]:
    """Weights of the route by Service."""
    (rule,) = world.extras[ROUTE]["spec"]["rules"]
    return {one["name"]: one.get("weight") for one in rule["backendRefs"]}


def told(world: World) -> tuple[str, str, str]:
    found = world.condition("RouteReady")
    assert world.condition("Ready")["status"] == "True", "a split held the service back"
    return found["status"], found["reason"], found["message"]


SERVES, BUILDS = other_resource(ready=True), other_resource(ready=False)
CHANGED = {**SERVES, "metadata": {"name": "next", "generation": 2}}
ALL, PARTS = {"pair": None}, {"pair": 90, "next": 10}


def serving(options: dict[str, Any]) -> dict[str, Any]:
    """The other resource, Ready, with options of its servers."""
    return {**SERVES, "spec": {**SERVES.get("spec", {}), "serving": options}}


def test_who_is_ready_gets_its_share_and_the_route_says_so() -> None:
    world = routed(peer=SERVES)
    assert shares(world) == PARTS
    status, reason, message = told(world)
    assert (status, reason) == ("True", "RouteAccepted")
    assert message.endswith("10 % of the requests go to next")


@pytest.mark.parametrize(
    ("peer", "wanted", "words"),
    [
        (None, "SplitTargetMissing", "SpeculativeModel next of networking.gateway.split does not"),
        ({"metadata": {"name": "next"}}, "SplitWaits", "next is not Ready (no status yet)"),
        # It answers, but its Gate is not passed: nobody is sent there to begin with.
        (BUILDS, "SplitWaits", "next is not Ready (Building)"),
        # Nor while what it says is of the spec that it had before.
        (CHANGED, "SplitWaits", "next is not Ready"),
        # A route leads to the HTTP port, which their Services lack.
        (serving({"http": "HealthOnly"}), "SplitWaits", "next serves no HTTP"),
        (serving({"tls": {"secretName": "next-tls"}}), "SplitWaits", "next serves no HTTP"),
        (
            {**SERVES, "metadata": {"name": "next", "deletionTimestamp": "2026-01-02T03:04:05Z"}},
            "SplitTargetMissing",
            "does not exist",
        ),
    ],
)
def test_who_does_not_serve_gets_nothing(
    peer: dict[str, Any] | None, wanted: str, words: str
) -> None:
    world = routed(percent=100, peer=peer)
    assert shares(world) == ALL
    status, reason, message = told(world)
    assert (status, reason) == ("Unknown", wanted)
    assert words in message
    assert message.endswith("every request goes to pair")


def test_a_share_begins_when_the_other_becomes_ready() -> None:
    world = routed(peer=BUILDS)
    world.peer = SERVES
    look(world)
    assert shares(world) == PARTS
    assert told(world)[1] == "RouteAccepted"


@pytest.mark.parametrize("peer", [BUILDS, CHANGED])
def test_a_share_stays_while_the_other_changes_and_pods_of_it_answer(peer: dict[str, Any]) -> None:
    world = routed(peer=SERVES)
    world.peer = peer
    look(world)
    assert shares(world) == PARTS
    assert told(world)[1] == "RouteAccepted"


@pytest.mark.parametrize(
    "peer", [None, other_resource(ready=False, pods=0), {**BUILDS, "spec": {"suspend": True}}]
)
def test_a_share_ends_when_the_other_serves_no_more(peer: dict[str, Any] | None) -> None:
    world = routed(peer=SERVES)
    world.peer = peer
    look(world)
    assert shares(world) == ALL
    # What builds when it comes back has to be ready once more.
    world.peer = BUILDS
    look(world)
    assert shares(world) == ALL


def test_a_refusal_of_the_gateway_is_the_first_thing_to_know() -> None:
    world = routed(peer=None)
    look(world, {"parents": [REFUSED]})
    assert told(world)[1:] == ("RouteNotAccepted", "HTTPRoute pair: no such listener")


def test_a_split_of_nothing_waits_for_nobody() -> None:
    world = routed(percent=0, peer=None)
    assert shares(world) == ALL
    assert told(world)[1] == "RouteAccepted"


def test_a_suspended_resource_still_sends_on_to_the_other() -> None:
    world = routed(percent=100, peer=SERVES)
    world.spec["suspend"] = True
    look(world)
    assert shares(world) == {"pair": 0, "next": 100}
