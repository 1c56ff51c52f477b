"""Renewed certificates: pods report their files, and a rollout replaces pods with old files."""

import json
from typing import Any

import pytest

from specdec.api import names
from support.simulated_cluster import World, resource, settled
from unit.pipeline.test_group import served

TLS: dict[str, Any] = {"tls": {"secretName": "pair-tls"}}
FIRST, SECOND, THIRD = "1" * 16, "2" * 16, "3" * 16


def line(started: object, now: object, at: object = 1.5) -> str:
    return json.dumps({"certificate": {"started": started, "now": now, "at": at}}) + "\n"


@pytest.fixture
def world() -> World:
    """Return a world whose service has TLS and serves."""
    return settled(resource(serving=TLS))


def log_lines(world: World, **logs: str) -> None:
    """Add pods of the server, with the logs of their certificate watchers."""
    assert world.deployment is not None
    labels = world.deployment["spec"]["template"]["metadata"]["labels"]
    for name, log in logs.items():
        meta = {"name": name, "labels": labels, "creationTimestamp": "2026-01-02T03:04:05Z"}
        world.pods.append({"metadata": meta, "spec": {}, "status": {"phase": "Running"}})
        world.logs[name] = log


def mark(world: World) -> str | None:
    """Reconcile, and return the certificate mark of the pod template."""
    world.step()
    assert world.deployment is not None
    annotations = world.deployment["spec"]["template"]["metadata"]["annotations"]
    after: str | None = annotations.get(names.CERTIFICATE)
    return after


def test_pods_with_the_current_certificate_stay(world: World) -> None:
    before = json.dumps(world.deployment)
    log_lines(world, a=line(FIRST, FIRST), b=line(FIRST, FIRST))
    assert mark(world) is None
    assert json.dumps(world.deployment) == before


def test_renewed_certificate_replaces_pods_once(world: World) -> None:
    log_lines(world, a=line(FIRST, FIRST), b=line(FIRST, FIRST) + line(FIRST, SECOND, 20.5))
    assert mark(world) == SECOND
    log_lines(world, c=line(SECOND, SECOND, 30))
    assert mark(world) == SECOND, "the new pod reads it, an old one still exists"
    log_lines(world, d=line(SECOND, THIRD, 40))
    assert mark(world) == THIRD
    world.pods.clear()
    assert mark(world) == THIRD, "without pods the mark stays"
    log_lines(world, e=line(THIRD, THIRD, 50))
    assert mark(world) == THIRD


@pytest.mark.parametrize(
    "log",
    [
        "",
        "Traceback\n",
        "[]",
        line(FIRST, "not a mark"),
        line(FIRST, 7),
        line(FIRST, SECOND, "now"),
        line(FIRST, SECOND, 5) + "cut off {",
    ],
)
def test_other_log_lines_change_nothing(world: World, log: str) -> None:
    log_lines(world, a=log)
    assert mark(world) is None


def test_certificate_is_renewed_during_a_build(world: World) -> None:
    """The live revision gets the new certificate, as it is also scaled during a build."""
    assert world.deployment is not None
    live = world.deployment["spec"]["template"]["metadata"]["annotations"][names.REPOSITORY]
    world.spec["speculation"]["maxDraftTokens"] = 6
    world.step()
    log_lines(world, a=line(FIRST, SECOND))
    assert mark(world) == SECOND
    after = world.deployment["spec"]["template"]["metadata"]["annotations"][names.REPOSITORY]
    assert after == live


def test_service_without_tls_has_no_certificate_mark(world: World) -> None:
    log_lines(world, a=line(FIRST, SECOND))
    assert mark(world) == SECOND
    world.spec["serving"] = {}
    assert mark(world) is None


def test_certificate_of_a_group_is_read_from_its_leader() -> None:
    world = served(**TLS)
    assert world.group is not None
    leader = world.group["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    meta = {"name": "l", "creationTimestamp": "2026-01-02T03:04:05Z", **leader["metadata"]}
    world.pods.append({"metadata": meta, "spec": leader["spec"], "status": {"phase": "Running"}})
    world.logs["l"] = line(FIRST, SECOND)
    world.step()
    made = world.group["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["metadata"]
    assert made["annotations"][names.CERTIFICATE] == SECOND
