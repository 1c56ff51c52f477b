"""What goes wrong, each as one sentence that a user may read."""

from __future__ import annotations

from enum import StrEnum


class EngineError(Exception):
    """A model cannot be loaded, or the engine stopped: says which field or file, and the mend."""


class Kind(StrEnum):
    """Whose trouble an error is, which decides the status a client sees."""

    INVALID = "INVALID_ARG"
    UNAVAILABLE = "UNAVAILABLE"
    CANCELLED = "CANCELLED"
    INTERNAL = "INTERNAL"


class RequestError(Exception):
    """One request cannot be served: says which tensor, its value, and the mend."""

    def __init__(self, message: str, kind: Kind = Kind.INVALID) -> None:
        super().__init__(message)
        self.kind = kind
