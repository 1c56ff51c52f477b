"""Download the files of a remote source, with resume, verification and limits.

The sources (`hugging_face`, `oci`, `ngc`, `object_store`) implement `Remote` and call `transfer`.
A file is written to `.NAME.part`. It is renamed once its length matches, and also its digest if
the source states one. A killed Job leaves its partial files, and the next Job requests the missing
bytes.
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
from specdec.images.serving.check_volume import named
from specdec.jobs import volume
from specdec.jobs.result import JobError, progress

_REPORT_SECONDS = 10.0
_WORKERS = 4
_BLOCK = 4 << 20
# A transfer below this average rate over a window ends with an error: it would take days.
_WINDOW_SECONDS = 60.0
_MINIMUM_RATE_BYTES = 16 << 10
# A connection that breaks after fewer bytes than this is not resumed within the same Job.
_MINIMUM_PROGRESS_BYTES = 4096


@dataclass(frozen=True)
class RemoteFile:
    """One file of a source.

    Attributes:
        name: on the volume.
        size: in bytes.
        key: identifies the file at the source.
        sha256: of the content in hex, empty unless the source states it.
        git: SHA-1 in hex of the content as a git blob, empty unless the source states it.
    """

    name: str
    size: int
    key: str
    sha256: str = ""
    git: str = ""


@dataclass(frozen=True)
class Listing:
    """The current content of a source.

    Attributes:
        identity: a JSON value that changes with the content.
        revision: for the status; empty if the source has none.
        bytes: of all files.
        files: to download.
    """

    identity: Any
    revision: str
    bytes: int
    files: tuple[RemoteFile, ...] = ()


class Remote(Protocol):
    """A remote source of files; both methods raise JobError with a documented reason."""

    def resolve(self) -> Listing:
        """List the files and their sizes."""

    def download(self, listing: Listing, folder: Path) -> None:
        """Download the files into a directory; files that are complete there are skipped."""


class BrokenError(Exception):
    """A connection broke during a transfer; the transfer may resume at the current offset."""


# Opens a file at an offset and yields its bytes; raises BrokenError or JobError.
Reader = Callable[[RemoteFile, int], AbstractContextManager[Iterator[bytes]]]


def transfer(files: Sequence[RemoteFile], folder: Path, read: Reader, where: str) -> None:
    """Download files, several at a time.

    Args:
        files: of the source.
        folder: receives them.
        read: opens a file at an offset.
        where: the source, for messages.

    Raises:
        JobError: NetworkError if a connection breaks without progress; CheckpointCorrupt if the
            content does not match the size or digest that the source states.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(_WORKERS) as pool:
        transfers = [pool.submit(_transfer, file, folder, read, where, stop) for file in files]
        try:
            for transfer in as_completed(transfers):
                transfer.result()
        except BaseException:
            # Also on SIGTERM, which raises SystemExit: other transfers stop at their next block.
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def _transfer(
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
            # With progress the transfer resumes at once; without, the next Job retries later.
            if part.stat().st_size < min(before + _MINIMUM_PROGRESS_BYTES, file.size):
                raise unreachable(where, error) from error
        else:
            if part.stat().st_size < file.size and not stop.is_set():
                raise unreachable(where, f"{file.name} ends before its {file.size} bytes")
    if stop.is_set():
        return
    if not _matches_digests(part, file):
        part.unlink()
        raise JobError(
            FetchReason.CHECKPOINT_CORRUPT,
            f"{file.name} from {where} does not match its digest: check the source for damage",
            permanent=False,
        )
    part.rename(final)


def _append(part: Path, file: RemoteFile, read: Reader, stop: threading.Event, where: str) -> None:
    start = part.stat().st_size
    with part.open("ab") as writer, read(file, start) as blocks:
        for block in _above_minimum_rate(blocks, where):
            start += len(block)
            if start > file.size:
                raise JobError(
                    FetchReason.CHECKPOINT_CORRUPT,
                    f"{file.name} is longer than the {file.size} bytes its source states: check "
                    "the source for damage",
                    permanent=False,
                )
            with named(part):
                writer.write(block)
            if stop.is_set():
                return


def _above_minimum_rate(blocks: Iterator[bytes], where: str) -> Iterator[bytes]:
    """Pass the blocks on, and raise JobError if the server sends them too slowly.

    Only the time spent waiting for the server counts, not the time to write to the volume.
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
            if count < _MINIMUM_RATE_BYTES * waited:
                rate = _MINIMUM_RATE_BYTES >> 10
                raise unreachable(where, f"it sends less than {rate} KiB a second")
            waited, count = 0.0, 0
        yield block


def _matches_digests(path: Path, file: RemoteFile) -> bool:
    """Whether the content has the digests that the source states."""
    if file.sha256 and volume.sha256(path) != file.sha256:
        return False
    return not file.git or _git_blob_id(path) == file.git


def _git_blob_id(path: Path) -> str:
    """The id (SHA-1) of a git blob with the file's content."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with named(path), path.open("rb") as reader:
        while block := reader.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def unreachable(where: str, cause: object) -> JobError:
    """The error for a transient network problem; the Job may be retried."""
    text = " ".join(str(cause).split())[:200]
    return JobError(
        FetchReason.NETWORK_ERROR,
        f"{where} cannot be downloaded ({text}): check that pods reach it, or correct the "
        "source's endpoint",
        permanent=False,
    )


def no_matching_files(where: str, expected: str) -> JobError:
    """The error for a source without any of the expected files at its root."""
    return JobError(
        FetchReason.SOURCE_NOT_FOUND,
        f"{where} has no {expected} at its root: put the files there, or choose a source that has "
        "them there",
    )


@contextmanager
def reporting(folder: Path, total: int, role: str) -> Iterator[None]:
    """Log the downloaded percentage at an interval while the block runs."""
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
            continue  # renamed after it was listed
    return min(99, 100 * arrived // max(total, 1))
