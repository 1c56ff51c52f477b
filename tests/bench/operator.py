"""The cost of the operator: memory, a reconcile of an unchanged resource, and a resource's start.

`make bench NAME=operator` prints one JSON line a figure and exits 1 when a goal is missed. It runs
on a real API server with simulated pods. The operator is a process with its shipped permissions.
"""

import argparse
import contextlib
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import yaml

from bench.baseline.jobs import ending
from cluster import ControlPlane
from controlplane.conftest import known
from controlplane.operating import ACCOUNT, Lab, Operator, until
from controlplane.pipeline import at_rest, claim, resource, serve
from support.bench_report import Report
from support.processor_time import processor_seconds

ROOT = Path(__file__).resolve().parents[2]
_RESIDENT_MIB = 120.0
_REQUESTS = 25.0
_SAMPLE = re.compile(r'specdec_api_requests_total\{code="\d+",kind="(\w+)",verb="(\w+)"\} (\S+)')


def main() -> int:
    """Run the bench; return 0 if every goal is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resources", type=int, default=3, help="resources served meanwhile")
    parser.add_argument("--reconciles", type=int, default=10, help="of each resource")
    parser.add_argument("--starts", type=int, default=16, help="resources that start together")
    options = parser.parse_args()
    report = Report()
    with contextlib.ExitStack() as stack:
        operator, plane = stack.enter_context(_running())
        idle = operator.resident_mib()
        _report_start(Lab(plane, operator), options.starts, report)
        labs = [stack.enter_context(Lab(plane, operator)) for _ in range(options.resources)]
        for lab in labs:
            serve(lab, "pair")
        report.figure("operator.resident_idle", [idle], "MiB", goal=_RESIDENT_MIB)
        costs = [_reconcile(lab, number) for lab in labs for number in range(options.reconciles)]
        resident = operator.resident_mib()
    report.figure("operator.resident", [resident], "MiB", goal=_RESIDENT_MIB)
    writes = [cost["writes"] for cost in costs]
    report.figure("operator.writes_of_unchanged", [max(writes)], "writes", goal=0)
    report.figure(
        "operator.requests_of_unchanged", [cost["requests"] for cost in costs], "requests"
    )
    report.figure("operator.unchanged_ms", [cost["ms"] for cost in costs], "ms")
    return report.exit_status()


@contextlib.contextmanager
def _running() -> Iterator[tuple[Operator, ControlPlane]]:
    """Yield the operator as a process, and a control plane with the rest of manifests/install."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        ControlPlane("bench-operator", hold_jobs=True, volumes=40, nodes=8) as plane,
    ):
        rendered = plane.kubectl("kustomize", str(ROOT / "manifests" / "install"))
        objects = [o for o in yaml.safe_load_all(rendered) if o["kind"] != "Deployment"]
        plane.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(objects))
        until(lambda: known(plane), "a known definition")
        with Operator(plane.service_account(*ACCOUNT), Path(scratch) / "operator.log") as operator:
            yield operator, plane


def _report_start(lab: Lab, count: int, report: Report) -> None:
    """Report what a resource costs from its creation until it is ready.

    Resources share nothing but the claim with their checkpoints. Their Jobs end at once. The bare
    driver then creates the same children, waits for the same Jobs, and writes one status each.
    """
    names_ = [f"pair-{number}" for number in range(count)]
    with lab, ending(lab.plane, lab.namespace):
        lab.apply(claim("pair"), resource("first"))
        lab.wait("first")  # the operator has loaded its tables
        at_rest(lab)
        before, seconds = _requests(lab.operator), processor_seconds(lab.operator.pid)
        begun = time.monotonic()
        lab.apply(*map(resource, names_))
        for name in names_:
            lab.wait(name)
        took = time.monotonic() - begun
        spent = processor_seconds(lab.operator.pid) - seconds
        after = _requests(lab.operator)
        report.figure("operator.start_seconds", [took], "s")
        report.figure("operator.start_ms", [1000 * spent / count], "ms")
        requests = sum(after.values()) - sum(before.values())
        report.figure("operator.start_requests", [requests / count], "requests", goal=_REQUESTS)
        for kind in sorted(after, key=lambda k: before[k] - after[k]):
            if after[kind] > before[kind]:
                report.note(f"{(after[kind] - before[kind]) / count:7.2f} {' '.join(kind)}")


def _requests(operator: Operator) -> Counter[tuple[str, str]]:
    """Return the requests so far by verb and kind, without watches and the checks of them."""
    counts = Counter[tuple[str, str]]()
    for line in operator.page():
        if match := _SAMPLE.match(line):
            kind, verb, value = match.groups()
            counts[verb, kind] += int(float(value))
    return counts


def _reconcile(lab: Lab, number: int) -> dict[str, float]:
    """Change an annotation of a served resource and measure the reconcile that follows."""
    operator = lab.operator
    at_rest(lab)
    before = _totals(operator)
    lab.kubectl("annotate", "specm", "pair", f"bench/number={number}", "--overwrite")
    until(lambda: operator.reconciles() > before["reconciles"], "a reconcile")
    at_rest(lab)
    after = _totals(operator)
    spent = {name: after[name] - value for name, value in before.items()}
    return {
        "writes": spent["writes"],
        "requests": spent["requests"] / spent["reconciles"],
        "ms": 1000 * spent["seconds"] / spent["reconciles"],
    }


def _totals(operator: Operator) -> dict[str, float]:
    return {
        "reconciles": operator.reconciles(),
        "writes": operator.writes(),
        "requests": operator.metric("specdec_api_requests_total"),
        "seconds": operator.metric("specdec_reconcile_duration_seconds_sum"),
    }


if __name__ == "__main__":
    sys.exit(main())
