"""The program of the fetch Job: `python -m specdec.pipeline.validation.fetch_job --plan JSON`.

It is `specdec.jobs.fetch` with the operator's own rules on checkpoints. They judge configuration
and tokenizer of every source before any weights are downloaded. The operator judges the facts of
the complete checkpoints once more.
"""

import sys
from collections.abc import Mapping
from typing import Any

from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.api.model import SpeculativeModel
from specdec.jobs import fetch
from specdec.jobs.result import JobError
from specdec.pipeline.validation import compatibility


def judge(plan: Mapping[str, Any], facts: Mapping[str, CheckpointFacts]) -> None:
    """Judge the facts of configurations, by role, with the part of the spec that the plan has.

    Raises:
        JobError: a finding that `spec.checks` enforces; its reason is the code of the finding.
    """
    body = {"metadata": {"name": "", "namespace": "", "uid": ""}, "spec": plan["spec"]}
    refused = compatibility.judge(SpeculativeModel.parse(body), facts).refused
    if refused:
        raise JobError(refused[0].code, "; ".join(finding.message for finding in refused))


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code is 0 if all checkpoints are on the volume."""
    return fetch.main(arguments, judge)


if __name__ == "__main__":
    sys.exit(main())
