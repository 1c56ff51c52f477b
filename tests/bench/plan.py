"""The time of planning: one resource in a running process, and the command with its start.

`make bench NAME=plan` prints one JSON line a figure and exits 1 when a goal is missed.
"""

import argparse
import sys
import time
from pathlib import Path

from specdec.controller.settings import Settings
from specdec.tools.dry_run.plan import Json, make
from specdec.tools.dry_run.rendering import files
from specdec.tools.dry_run.resource import read
from support.bench_report import Report

SAMPLES = Path(__file__).resolve().parents[2] / "manifests" / "samples"
# A sample of each backend; the figures of the second have the suffix `_engines`.
SAMPLE = SAMPLES / "reference-draft-target.yaml"
ENGINES = SAMPLES / "tensorrt-draft-target-fast-logits.yaml"
# In times of `Report.against_machine`.
_PLAN = 10.0
# In starts of Python: 1 s where one takes 13 ms.
_STARTS_OF_PYTHON = 75.0


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
        report.figure(f"plan.plan_and_render{suffix}_ms", plans, "ms")
        seconds = [plan / 1000 for plan in plans]
        report.against_machine(f"plan.plan_and_render{suffix}", seconds, goal=_PLAN)
        command, name = ["plan", "-f", str(sample)], f"plan.command{suffix}"
        report.starts(name, command, options.starts, goal=_STARTS_OF_PYTHON)
    return report.exit_status()


def _planned(body: Json, number: int) -> float:
    """Return the milliseconds of processor time to plan and render a resource without caches."""
    body["spec"]["target"]["limits"]["maxBatchSize"] = 16 + number
    begun = time.process_time()
    files(make(body, Settings().images))
    return 1000 * (time.process_time() - begun)


if __name__ == "__main__":
    sys.exit(main())
