"""Sources behind a network: what they hold, and how it arrives whole.

A file grows under a hidden name beside its final one and is renamed when its length, and its
digest where the source states one, are right. A Job that is killed leaves what has arrived; the
next one asks for the rest.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from specdec.api.reasons import FetchReason
from specdec.jobs import volume
from specdec.jobs.result import JobError, progress

_REPORT_SECONDS = 10.0
_WORKERS = 4
_BLOCK = 4 << 20
# A transfer that brings less on an average of a window is given up: it would take days.
_WINDOW_SECONDS = 60.0
_RATE_BYTES = 16 << 10
# And so is one whose connections break before they brought this much.
_LEAST_BYTES = 4096


@dataclass(frozen=True)
class RemoteFile:
    """One file of a source; `key` is what the source knows it by.

    Digests (hex) are those that the source states, else empty: `sha256` of the content, `git` of
    the content as a blob of git (SHA-1).
    """

    name: str
    size: int
    key: str
    sha256: str = ""
    git: str = ""


@dataclass(frozen=True)
class Listing:
    """What a source holds now: `identity` changes with the content, `bytes` are to be fetched."""

    identity: Any
    revision: str
    bytes: int
    files: tuple[RemoteFile, ...] = ()


class Remote(Protocol):
    """A source of files; both methods raise JobError with a documented reason."""

    def resolve(self) -> Listing:
        """Ask what there is."""

    def download(self, listing: Listing, folder: Path) -> None:
        """Bring it into a directory; what is there already is not sent again."""


class BrokenError(Exception):
    """A transfer broke off; it may go on from where it is."""


# Bytes of a file from an offset on; raises BrokenError or JobError.
Reader = Callable[[RemoteFile, int], AbstractContextManager[Iterator[bytes]]]


def transfer(files: Sequence[RemoteFile], folder: Path, read: Reader, where: str) -> None:
    """Download files, several at a time.

    Raises:
        JobError: NetworkError when a connection breaks without a byte in between,
            CheckpointCorrupt when the bytes are not those that the source states.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(_WORKERS) as pool:
        waiting = [pool.submit(_whole, file, folder, read, where, stop) for file in files]
        try:
            for done in as_completed(waiting):
                done.result()
        except BaseException:
            # Also when the Job is told to end: the others stop at their next block.
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def _whole(
    file: RemoteFile, folder: Path, read: Reader, where: str, stop: threading.Event
) -> None:
    final, part = folder / file.name, folder / f".{file.name}.part"
    if final.is_file() and final.stat().st_size == file.size:
        return
    if part.is_file() and part.stat().st_size > file.size:
        part.unlink()
    part.touch()
    while (before := part.stat().st_size) < file.size and not stop.is_set():
        try:
            _append(part, file, read, stop, where)
        except BrokenError as error:
            # As long as bytes come it goes on at once; else the next Job tries, later.
            if part.stat().st_size < min(before + _LEAST_BYTES, file.size):
                raise unreachable(where, error) from error
        else:
            if part.stat().st_size < file.size and not stop.is_set():
                raise unreachable(where, f"{file.name} ends before its {file.size} bytes")
    if stop.is_set():
        return
    if not _is_stated(part, file):
        part.unlink()
        raise JobError(
            FetchReason.CHECKPOINT_CORRUPT,
            f"{file.name} from {where} is not what its digest says: check the source for damage",
            permanent=False,
        )
    part.rename(final)


def _append(part: Path, file: RemoteFile, read: Reader, stop: threading.Event, where: str) -> None:
    start = part.stat().st_size
    with part.open("ab") as writer, read(file, start) as blocks:
        for block in _steady(blocks, where):
            start += len(block)
            if start > file.size:
                raise JobError(
                    FetchReason.CHECKPOINT_CORRUPT,
                    f"{file.name} is longer than the {file.size} bytes its source states: check "
                    "the source for damage",
                    permanent=False,
                )
            writer.write(block)
            if stop.is_set():
                return


def _steady(blocks: Iterator[bytes], where: str) -> Iterator[bytes]:
    """The blocks of a server that sends; one that drips for ever ends the transfer.

    Only the time that the server takes counts, not that of the volume.
    """
    waited, count = 0.0, 0
    while True:
        began = time.monotonic()
        block = next(blocks, None)
        waited += time.monotonic() - began
        if block is None:
            return
        count += len(block)
        if waited > _WINDOW_SECONDS:
            if count < _RATE_BYTES * waited:
                raise unreachable(where, f"it sends less than {_RATE_BYTES >> 10} KiB a second")
            waited, count = 0.0, 0
        yield block


def _is_stated(path: Path, file: RemoteFile) -> bool:
    """Whether the content has the digests that its source states."""
    if file.sha256 and volume.sha256(path) != file.sha256:
        return False
    return not file.git or _git(path) == file.git


def _git(path: Path) -> str:
    """The name that git gives a blob of this content."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as reader:
        while block := reader.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def unreachable(where: str, why: object) -> JobError:
    """A network error that another try may mend."""
    text = " ".join(str(why).split())[:200]
    return JobError(
        FetchReason.NETWORK_ERROR,
        f"{where} cannot be downloaded ({text}): check that pods reach it, or correct the "
        "source's endpoint",
        permanent=False,
    )


def nothing(where: str, what: str) -> JobError:
    """A source that answers and holds none of the files that count."""
    return JobError(
        FetchReason.SOURCE_NOT_FOUND,
        f"{where} has no {what} at its top: correct the source, which names the directory itself",
    )


@contextmanager
def reporting(folder: Path, total: int, role: str) -> Iterator[None]:
    """Print how much has arrived, now and then, while the block runs."""
    done = threading.Event()

    def report() -> None:
        while not done.wait(_REPORT_SECONDS):
            progress("download", _percent(folder, total), role)

    thread = threading.Thread(target=report, daemon=True)
    progress("download", _percent(folder, total), role)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    progress("download", 100, role)


def _percent(folder: Path, total: int) -> int:
    arrived = 0
    for path in folder.rglob("*"):
        try:
            arrived += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue  # renamed between listing and looking
    return min(99, 100 * arrived // max(total, 1))
