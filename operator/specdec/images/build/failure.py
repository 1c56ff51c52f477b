"""Errors of a build: a condition reason, and a message of one sentence with the fix."""

from __future__ import annotations

import errno


class BuildError(Exception):
    """A build that cannot succeed, with the reason an operator can act on.

    Attributes:
        reason: one word for a condition, such as CheckpointCorrupt.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Cancelled(BaseException):
    """SIGTERM arrived; a BaseException, so that no handler of errors catches it."""


def full() -> BuildError:
    """Return the error of a full volume."""
    return BuildError(
        "VolumeFull", "the model volume is full; enlarge the claim or free space on it"
    )


def explain(error: BaseException, *, stopped: bool) -> BuildError:
    """Convert any error into a build error with a reason and a fix.

    Args:
        error: what ended the build.
        stopped: whether SIGTERM arrived, even if the interrupted code raised another error.
    """
    if isinstance(error, BuildError):
        return error
    if stopped:
        return BuildError("Cancelled", "the build was stopped before it was complete")
    if isinstance(error, MemoryError):
        return BuildError("OutOfMemory", "not enough memory for one layer; raise the Job's limit")
    if isinstance(error, ModuleNotFoundError):
        return BuildError(
            "BuildFailed",
            f"the image has no Python module {error.name}; set spec.runtime.image to one of the "
            "backend's server",
        )
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return full()
    if isinstance(error, OSError):
        file, cause = error.filename or "a file", error.strerror or error
        return BuildError(
            "VolumeUnusable",
            f"the build cannot read or write {file} ({cause}): check the volume, and that user "
            "and group 10001 may use it",
        )
    return BuildError("Internal", f"the build failed: {type(error).__name__}: {error}")
