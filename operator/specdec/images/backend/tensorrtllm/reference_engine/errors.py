"""Errors of the engine; every message is one sentence that may be shown to a user."""

from __future__ import annotations

from enum import StrEnum


class EngineError(Exception):
    """A model cannot be loaded; the message names the field or file, and the fix."""


class Kind(StrEnum):
    """The cause of an error, as the code of Triton that a client gets."""

    INVALID = "INVALID_ARG"
    UNAVAILABLE = "UNAVAILABLE"
    CANCELLED = "CANCELLED"
    INTERNAL = "INTERNAL"


class RequestError(Exception):
    """One request cannot be served; the message names the tensor, its value, and the fix."""

    def __init__(self, message: str, kind: Kind = Kind.INVALID) -> None:
        super().__init__(message)
        self.kind = kind
