"""Replaces pods under load on a real node, repeatedly: no client loses a request.

`make campaign NAME=rollout` needs Linux and root. Eight clients send requests all the time and
never retry. Half of them stream, and half use gRPC channels that they keep open. Each round has
three parts: a rolling restart of two replicas, another number of draft tokens, and a revision that
cannot start. The pods of the old revision must keep serving.
"""

import argparse
import time
from collections.abc import Callable

from e2e.node import up
from e2e.traffic import Seen, asking
from e2e.world import World, model
from support.bench_report import Report

NAME = "rolled"
ROUNDS = 3
REPLICAS = 2


def restarted(world: World) -> None:
    """Restart the rollout: new pods with the same template replace all pods."""
    before = _uids(world)
    world.kubectl("rollout", "restart", f"deployment/{NAME}")
    _replaced(world, before)


def changed(world: World) -> None:
    """Change the number of draft tokens: this publishes a new repository and replaces all pods."""
    before, now = _uids(world), world.get(NAME)["spec"]["speculation"]["draftTokens"]
    world.patch(NAME, {"speculation": {"draftTokens": 3 if now == 4 else 4}})
    _replaced(world, before)


def broken(world: World) -> None:
    """Apply a server that cannot start: the resource reports it, and the serving pods stay."""
    before = _uids(world)
    world.patch(NAME, {"serving": {"sharedMemory": "1Ki"}})
    condition = world.until(NAME, "Available", "CrashLoop")
    if not condition["message"].endswith(f"; {REPLICAS} of {REPLICAS} pods serve requests"):
        raise AssertionError(condition["message"])
    world.patch(NAME, {"serving": {"sharedMemory": "256Mi"}})
    world.ready(NAME)
    if _uids(world) != before:
        raise AssertionError("a pod that served was replaced")


PARTS: dict[str, Callable[[World], None]] = {
    "restart": restarted,
    "change": changed,
    "broken": broken,
}


def run_part(world: World, part: str, report: Report) -> None:
    """Run a part under load and report its figures."""
    begun = time.monotonic()
    with asking(world, NAME) as seen:
        PARTS[part](world)
        seen.more(world)
    _judge(part, seen, time.monotonic() - begun, report)


def _judge(part: str, seen: Seen, seconds: float, report: Report) -> None:
    for kind, count in sorted(seen.answers.items()):
        report.figure(f"rollout.{part}_{kind.replace(' ', '_')}", [count], "answers")
    report.figure(f"rollout.{part}_seconds", [seconds], "s")
    report.figure(f"rollout.{part}_failed", [len(seen.failures)], "requests", goal=0)
    for failure in seen.failures[:20]:
        report.note(failure)


def _uids(world: World) -> set[str]:
    return {pod["metadata"]["uid"] for pod in world.pods(NAME)}


def _replaced(world: World, before: set[str]) -> None:
    world.wait(
        lambda: len(_uids(world) - before) == REPLICAS,
        lambda: f"the pods of {NAME} are not replaced",
    )
    world.left(NAME, REPLICAS)
    world.ready(NAME)


def main() -> int:
    """Run the campaign; return 1 if a request failed."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.rollout", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of all parts (%(default)s)")
    parser.add_argument("--parts", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--keep", action="store_true", help="leave the node up for the next run")
    options = parser.parse_args()
    report = Report()
    with up("specdec-rollout", keep=options.keep) as world:
        world.apply(model(NAME, serving={"replicas": REPLICAS}), keep=True)
        world.ready(NAME)
        for _ in range(options.rounds):
            for part in options.parts:
                run_part(world, part, report)
    return report.exit_status()


if __name__ == "__main__":
    raise SystemExit(main())
