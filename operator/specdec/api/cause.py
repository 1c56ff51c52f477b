"""Why something is as it is: a reason for programs and a sentence for people."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cause:
    """A CamelCase reason and one sentence."""

    reason: str
    message: str
