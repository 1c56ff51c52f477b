"""One thing that does not fit, and the facts it was found in."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdec.api.model import Severity

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Finding:
    """A CamelCase code and one sentence with values and the mend.

    `check` is the field of `spec.checks` that weighs it, `role` the part it is found in, and
    `severity` the most it can be by itself.
    """

    code: str
    message: str
    check: str
    role: str
    severity: Severity = "Enforce"
