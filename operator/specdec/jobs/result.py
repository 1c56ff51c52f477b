"""How a Job of ours ends: one JSON object in the termination message, and an exit code.

The kubelet hands at most 4096 bytes of the message to the API server; it is how results travel
without a channel of their own.
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
    """Why a Job cannot do its work: a CamelCase reason and one sentence with the mend.

    `permanent` says that trying again will not help; the Job then ends at once. `told` is what it
    found nevertheless, and is left beside the error.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        permanent: bool = True,
        told: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.permanent = permanent
        self.told = dict(told or {})


def run(work: Callable[[], Mapping[str, Any]], fallback: Reason) -> int:
    """Do the work and leave its result; returns the exit code of the process.

    `fallback` is the reason of an error that nobody foresaw. SIGTERM ends the work through
    `SystemExit`, so that what it holds (temporary directories, locks) is given back.
    """
    signal.signal(signal.SIGTERM, _terminate)
    os.umask(0o022)
    try:
        leave(work())
    except JobError as error:
        return _fail(error)
    except OSError as error:
        return _fail(_system_error(error, fallback))
    except Exception as error:  # noqa: BLE001 - the boundary: a user gets a sentence, the log the rest
        traceback.print_exc()
        message = f"the Job's program met an error that nobody foresaw ({type(error).__name__})"
        return _fail(JobError(fallback, f"{message}: its log has the rest", permanent=False))
    return 0


def leave(value: Mapping[str, Any]) -> None:
    """Write a result as the termination message, shortened to what fits.

    Outside a pod there is no such file; the line on stdout is all then.
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
    """Compact JSON of at most 4096 bytes: the list of engines gives way first, then sentences.

    Facts of five sources stay far below the limit.
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
    """One line of progress in the log."""
    print(f"progress phase={phase} percent={percent} {note}".rstrip(), flush=True)


def _encoded(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _cut(item: Mapping[str, Any], characters: int) -> dict[str, Any]:
    return {k: v[:characters] if isinstance(v, str) else v for k, v in item.items()}


def _fail(error: JobError) -> int:
    message = error.message[:_MESSAGE_CHARACTERS]
    leave({**error.told, "error": {"reason": str(error.reason), "message": message}})
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
    return JobError(fallback, f"reading or writing failed: {error}", permanent=False)


def _terminate(signum: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(_TERMINATED)
