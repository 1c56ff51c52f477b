"""Single and repeated checks of files and addresses."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.processes import DEADLINE_SECONDS


def listens(url: str) -> bool:
    """Return whether a server accepts a connection at `host:port`."""
    host, _, port = url.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def whole(kind: str, folder: Path) -> bool:
    """Return whether a directory of a model volume has all files of a finished one of its kind."""
    if kind == "engines":
        return all((folder / name).is_file() for name in ("config.json", "manifest.json"))
    if kind == "repositories":
        return (folder / "tensorrt_llm_bls" / "config.pbtxt").is_file()
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


@contextmanager
def repeating(check: Callable[[], list[str]]) -> Iterator[list[str]]:
    """Run the check ten times a second; yield the list that collects the results."""
    results: list[str] = []
    over = threading.Event()

    def loop() -> None:
        while not over.wait(0.1):
            results.extend(check())

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield results
    finally:
        over.set()
        thread.join(DEADLINE_SECONDS)
