"""A mismatch between fetched checkpoints."""

from dataclasses import dataclass

from specdec.api.model import Severity
from specdec.api.reasons import Reason


def differ(known: object, own: object) -> bool:
    """Whether two facts differ; False where one of them is not stated."""
    return known is not None and own is not None and known != own


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
