"""The result of a Job: one JSON object in the container's termination message, and an exit code.

Every program in this package runs its work through `run`. The kubelet passes at most 4096 bytes of
the termination message to the API server, where the operator reads it. `shorten` keeps the result
within that limit, so it is always complete JSON.
"""

import errno
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, NoReturn

from specdec.api.reasons import FetchReason, Reason

LIMIT_BYTES = 4096
TRANSIENT = 1
PERMANENT = 2
_TERMINATED = 128 + signal.SIGTERM
_MESSAGE_CHARACTERS = 1000


class JobError(Exception):
    """The reason why a Job failed.

    Attributes:
        reason: CamelCase, for the condition.
        message: one sentence with the cause and the resolution.
        permanent: a retry cannot succeed, so the Job ends at once.
        partial_result: JSON object that is returned together with the error.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        permanent: bool = True,
        partial_result: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.permanent = permanent
        self.partial_result = dict(partial_result or {})


def run(work: Callable[[], Mapping[str, Any]], fallback: Reason) -> int:
    """Run the work, write its result, and return the exit code of the process.

    `fallback` is the reason for an unexpected error. SIGTERM raises `SystemExit` in the work, so
    that it releases its locks and temporary directories.
    """
    signal.signal(signal.SIGTERM, _terminate)
    os.umask(0o022)
    try:
        write_result(work())
    except JobError as error:
        return _fail(error)
    except OSError as error:
        if error.filename is None:
            traceback.print_exc()  # which file or connection it was
        return _fail(_system_error(error, fallback))
    except Exception as error:  # noqa: BLE001 - the outermost boundary of the program
        traceback.print_exc()
        message = f"the Job failed with an unexpected error ({type(error).__name__})"
        return _fail(JobError(fallback, f"{message}: see its log for details", permanent=False))
    return 0


def write_result(value: Mapping[str, Any]) -> None:
    """Write a result to stdout and to the termination message, shortened to the limit.

    Outside a pod there is no termination message, and only stdout has the result.
    """
    text = shorten(value)
    print(text, flush=True)
    path = os.environ.get("SPECDEC_TERMINATION_LOG", "/dev/termination-log")
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        print(f"no termination message at {path}: {error}", file=sys.stderr)


def shorten(value: Mapping[str, Any]) -> str:
    """Compact JSON of at most 4096 bytes: the list of engines is cut first, then error messages.

    The remaining facts, of at most five sources, stay far below the limit.
    """
    fitting = dict(value)
    while len(_encoded(fitting)) > LIMIT_BYTES and fitting.get("engines"):
        fitting["engines"] = fitting["engines"][: len(fitting["engines"]) // 2]
    for characters in (600, 300, 150, 75, 35):
        if len(_encoded(fitting)) <= LIMIT_BYTES:
            break
        if "error" in fitting:
            fitting["error"] = _cut(fitting["error"], characters)
    return _encoded(fitting).decode()


def progress(phase: str, percent: int, note: str = "") -> None:
    """Log one line of progress."""
    print(f"progress phase={phase} percent={percent} {note}".rstrip(), flush=True)


def _encoded(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _cut(item: Mapping[str, Any], characters: int) -> dict[str, Any]:
    return {k: v[:characters] if isinstance(v, str) else v for k, v in item.items()}


def _fail(error: JobError) -> int:
    message = error.message[:_MESSAGE_CHARACTERS]
    write_result(
        {**error.partial_result, "error": {"reason": str(error.reason), "message": message}}
    )
    return PERMANENT if error.permanent else TRANSIENT


def _system_error(error: OSError, fallback: Reason) -> JobError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return JobError(
            FetchReason.VOLUME_FULL,
            f"the volume is full (writing {error.filename or 'a file'}): enlarge the claim or "
            "free space on it",
            permanent=False,
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return JobError(
            FetchReason.VOLUME_UNUSABLE,
            f"{error.filename or 'the volume'} cannot be read or written ({error.strerror}): give "
            "user and group 10001 access to it",
            permanent=False,
        )
    if error.filename is None:
        message = (
            f"a file or connection failed ({error}): the Job's log shows where; check the volumes "
            "of its pod"
        )
        return JobError(fallback, message, permanent=False)
    return JobError(
        fallback if error.errno == errno.ENOENT else FetchReason.VOLUME_UNUSABLE,
        f"{error.filename} cannot be read or written ({error.strerror}): check the storage of "
        "that volume",
        permanent=False,
    )


def _terminate(signum: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(_TERMINATED)
