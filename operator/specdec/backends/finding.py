"""A mismatch between fetched checkpoints, and the facts that it is judged from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdec.api.model import Severity
from specdec.api.reasons import Reason

CheckpointFacts = Mapping[str, Any]


@dataclass(frozen=True)
class Finding:
    """One mismatch: a CamelCase code, and one sentence with the values and the fix.

    `check` is the field of `spec.checks` that sets the severity; empty for none. `role` is the
    checkpoint that the finding is about. `severity` limits the severity that the spec sets.
    """

    code: Reason
    message: str
    check: str
    role: str
    severity: Severity = "Enforce"
