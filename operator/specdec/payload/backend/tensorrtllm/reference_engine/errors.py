"""What goes wrong, each as one sentence that a user may read."""

from __future__ import annotations


class EngineError(Exception):
    """A model cannot be loaded, or the engine stopped: says which field or file, and the mend."""


class RequestError(Exception):
    """One request cannot be served: says which tensor, its value, and the mend."""
