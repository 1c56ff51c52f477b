"""The cause of a state: a reason for programs and a message for people."""

from dataclasses import dataclass

from specdec.api.reasons import Reason


@dataclass(frozen=True)
class Cause:
    """A condition reason and its message of one sentence."""

    reason: Reason
    message: str
