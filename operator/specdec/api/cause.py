"""Why something is as it is: a reason for programs and a sentence for people."""

from dataclasses import dataclass

from specdec.api.reasons import Reason


@dataclass(frozen=True)
class Cause:
    """A CamelCase reason and one sentence."""

    reason: Reason
    message: str
