"""The time of planning: one resource in a running process, and the command with its start.

`make bench NAME=plan` prints one JSON line a figure and exits 1 when a goal is missed.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

from specdec.controller.settings import Settings
from specdec.dry_run.plan import Json, make
from specdec.dry_run.rendering import files
from specdec.dry_run.resource import read
from support.bench_report import Report

SAMPLES = Path(__file__).resolve().parents[2] / "manifests" / "samples"
# A sample of each backend; the figures of the second have the suffix `_engines`.
SAMPLE = SAMPLES / "reference-draft-target.yaml"
ENGINES = SAMPLES / "tensorrt-draft-target-fast-logits.yaml"
_PLAN_MS = 50.0
_COMMAND_SECONDS = 1.0


def main() -> int:
    """Run the bench; return 0 if every goal is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=50, help="resources planned")
    parser.add_argument("--starts", type=int, default=7, help="times the command is started")
    options = parser.parse_args()
    report = Report()
    for suffix, sample in (("", SAMPLE), ("_engines", ENGINES)):
        body = read(str(sample))
        _planned(body, 0)  # reads what is cached: payload, templates, support matrix
        plans = [_planned(body, number + 1) for number in range(options.plans)]
        report.figure(f"plan.plan_and_render{suffix}_ms", plans, "ms", goal=_PLAN_MS)
        starts = [_started(sample) for _ in range(options.starts)]
        report.figure(f"plan.command{suffix}_seconds", starts, "s", goal=_COMMAND_SECONDS)
    return report.exit_status()


def _planned(body: Json, number: int) -> float:
    """Return the milliseconds to plan and render a resource that no cache holds."""
    body["spec"]["target"]["limits"]["maxBatchSize"] = 16 + number
    begun = time.perf_counter()
    files(make(body, Settings().images))
    return 1000 * (time.perf_counter() - begun)


def _started(sample: Path) -> float:
    begun = time.perf_counter()
    command = [sys.executable, "-m", "specdec.cli", "plan", "-f", str(sample)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
