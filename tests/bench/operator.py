"""The cost of the operator: its memory, and a reconcile of an unchanged resource.

`make bench NAME=operator` prints one JSON line a figure and exits 1 when a goal is missed. It runs
on a real API server with simulated pods. The operator is a process with its shipped permissions.
"""

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import yaml

from cluster import ControlPlane
from controlplane.conftest import known
from controlplane.operating import ACCOUNT, Lab, Operator, until
from controlplane.pipeline import at_rest, serve
from support.bench_report import Report

ROOT = Path(__file__).resolve().parents[2]
_RESIDENT_MIB = 120.0


def main() -> int:
    """Run the bench; return 0 if every goal is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resources", type=int, default=3, help="resources served meanwhile")
    parser.add_argument("--reconciles", type=int, default=10, help="of each resource")
    options = parser.parse_args()
    report = Report()
    with contextlib.ExitStack() as stack:
        operator, plane = stack.enter_context(_running())
        idle = operator.resident_mib()
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
        ControlPlane("bench-operator", hold_jobs=True) as plane,
    ):
        rendered = plane.kubectl("kustomize", str(ROOT / "manifests" / "install"))
        objects = [o for o in yaml.safe_load_all(rendered) if o["kind"] != "Deployment"]
        plane.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(objects))
        until(lambda: known(plane), "a known definition")
        with Operator(plane.service_account(*ACCOUNT), Path(scratch) / "operator.log") as operator:
            yield operator, plane


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
