"""kubectl scale, an autoscaler and the operator on one field of a resource under load.

`make campaign NAME=scale` needs Linux and root. On a real node, kubectl changes the replicas a
hundred times between one and two, in bursts, while eight clients send requests and never retry.
After each burst the service has the last number. Then a user sets more than the maximum of an
autoscaler, the autoscaler lowers the same field, and the operator follows this last write.
"""

import argparse
import json
import time
from dataclasses import dataclass

from controlplane.audit import Log, writers
from e2e.node import up
from e2e.record import written
from e2e.traffic import Seen, asking
from e2e.world import Object, World, model
from specdec.api import names
from support.bench_report import Report

NAME = "scaled"
CHANGES = 100
# Odd, so that a burst ends with a different number of replicas than it started with.
BURST = 25
MOST = 2
SCALING: Object = {
    "minReplicas": 1,
    "maxReplicas": MOST,
    "scaleDownSeconds": 0,
    # No metrics server runs here: the autoscaler only enforces its bounds.
    "metrics": [{"type": "Pods", "name": "queue", "target": "1"}],
}


@dataclass
class Writes:
    """Counts of the changes to the spec, by their author."""

    by_kubectl: int = 0
    by_autoscaler: int = 0


def scale(world: World, name: str, replicas: int) -> None:
    """Set the replicas, as a user does."""
    world.kubectl("scale", "specm", name, f"--replicas={replicas}")


def burst(world: World, name: str, replicas: int, count: int = BURST) -> int:
    """Switch between one and two replicas as fast as kubectl allows; return the last number."""
    for _ in range(count):
        replicas = 3 - replicas
        scale(world, name, replicas)
    return replicas


def settled(world: World, name: str, replicas: int) -> None:
    """Wait until spec and status have this number, all pods are ready and no others exist."""

    def there() -> bool:
        body = world.get(name)
        status = body["status"]
        counted = {body["spec"]["serving"]["replicas"], status.get("replicas", 0)}
        current: bool = status["observedGeneration"] == body["metadata"]["generation"]
        return current and counted | {status.get("readyReplicas", 0)} == {replicas}

    world.wait(there, lambda: f"{name} does not come to {replicas} replicas")
    world.left(name, replicas)


def beyond(world: World, name: str) -> None:
    """Set more replicas than the autoscaler allows, and wait until it writes its maximum."""
    scale(world, name, MOST + 1)
    world.wait(
        lambda: world.get(name)["spec"]["serving"]["replicas"] == MOST,
        lambda: f"the autoscaler leaves {name} at {MOST + 1} replicas",
    )


def spec_writers(world: World, name: str) -> set[str]:
    """Return the field managers of the current spec."""
    shown = world.kubectl("get", "specm", name, "-o", "json", "--show-managed-fields")
    return writers(json.loads(shown))


def run(world: World, changes: int, report: Report) -> None:
    """Run all changes and report the figures."""
    log, before, writes = Log(world.node.audit_log), world.get(NAME), Writes()
    begun, replicas = time.monotonic(), 1
    with asking(world, NAME) as seen:
        while writes.by_kubectl < changes:
            count = min(BURST, changes - writes.by_kubectl)
            replicas = burst(world, NAME, replicas, count)
            writes.by_kubectl += count
            settled(world, NAME, replicas)
            beyond(world, NAME)
            writes.by_autoscaler += 1
            replicas = MOST
            settled(world, NAME, replicas)
        seen.more(world)
    _report(seen, time.monotonic() - begun, report)
    extra = writes.by_autoscaler
    report.figure("scale.changes", [writes.by_kubectl + extra], "writes")
    report.figure("scale.autoscaler_writes", [extra], "writes")
    _judge(world, before, writes, log, report)


def _judge(world: World, before: Object, writes: Writes, log: Log, report: Report) -> None:
    """Report the spec writes that are unaccounted for, and those by the operator."""
    after = world.get(NAME)
    known = writes.by_kubectl + 2 * writes.by_autoscaler
    grown = after["metadata"]["generation"] - before["metadata"]["generation"]
    report.figure("scale.unknown_spec_writes", [abs(grown - known)], "writes", goal=0)
    wrong = [r for r in written(log) if r.resource != "speculativemodels/status"]
    operator = len(wrong) + (names.MANAGER in spec_writers(world, NAME))
    report.figure("scale.spec_writes_by_the_operator", [operator], "writes", goal=0)


def _report(seen: Seen, seconds: float, report: Report) -> None:
    for kind, count in sorted(seen.answers.items()):
        report.figure(f"scale.{kind.replace(' ', '_')}", [count], "answers")
    report.figure("scale.seconds", [seconds], "s")
    report.figure("scale.failed", [len(seen.failures)], "requests", goal=0)
    for failure in seen.failures[:20]:
        report.note(failure)


def main() -> int:
    """Run; return 1 if a request failed, or if the operator wrote more than the status."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.scale", description=__doc__)
    parser.add_argument("--changes", type=int, default=CHANGES, help="by kubectl (%(default)s)")
    parser.add_argument("--keep", action="store_true", help="leave the node up for the next run")
    options = parser.parse_args()
    report = Report()
    with up("specdec-scale", keep=options.keep) as world:
        world.apply(model(NAME, serving={"replicas": 1, "scaling": SCALING}), keep=True)
        world.ready(NAME)
        run(world, options.changes, report)
    return report.exit_status()


if __name__ == "__main__":
    raise SystemExit(main())
