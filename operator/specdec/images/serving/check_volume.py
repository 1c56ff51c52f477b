"""Compare the files of a server with what was published, then replace this process by the server.

    check_volume.py MANIFEST SECONDS COMMAND ...

The manifest, on the volume beside the repositories, lists the folders that the server reads, with
size, modification time and SHA-256 of every file. Sizes and times are compared; only a file whose
time differs is read. Damage is printed as one line of JSON, `{"volume": {"damaged": [SENTENCE]}}`,
which the operator reads to repair the volume. The program waits for the repair. The server then
starts as soon as its files are complete, without the kubelet's back-off. After SECONDS the program
exits 1.

Where an argument of COMMAND contains `{probe-key}`, a random key takes its place, and a file hands
the key to the probes of this container.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import stat
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PLACEHOLDER = "{probe-key}"
KEY = Path(os.environ.get("SPECDEC_PROBE_KEY", "/tmp/specdec-probe-key"))  # noqa: S108
_PERIOD = 2.0
_BLOCK = 1 << 20
_LISTED = 5

# SHA-256 by path, size and time, so that an unchanged file is read once.
Digests = dict[tuple[str, int, int], str]


def differences(
    folder: Path, files: Mapping[str, Any], *, exact: bool = False, known: Digests | None = None
) -> Iterator[str]:
    """Yield the differences between the files of a folder and the listed ones.

    Args:
        folder: the directory.
        files: by path below it: `bytes`, `sha256` (hex) and `mtime` (ns; None: read the file).
        exact: whether an unlisted file is a difference too.
        known: digests of an earlier comparison.

    Raises:
        OSError: a file that exists cannot be read.
    """
    for name, entry in sorted(files.items()):
        path = folder / name
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            yield f"{name} is missing"
            continue
        if not stat.S_ISREG(status.st_mode):
            yield f"{name} is not a file"
        elif status.st_size != entry["bytes"]:
            yield f"{name} has {status.st_size} bytes, not {entry['bytes']}"
        elif status.st_mtime_ns != entry["mtime"]:
            seen = (str(path), status.st_size, status.st_mtime_ns)
            digests = {} if known is None else known
            digests[seen] = digests.get(seen) or sha256(path)
            if digests[seen] != entry["sha256"]:
                yield f"{name} has other content"
    if exact:
        yield from (f"{name} does not belong there" for name in foreign(folder, files))


def foreign(folder: Path, files: Mapping[str, Any]) -> Iterator[str]:
    """Entries of a folder other than the listed files and their directories, links included."""
    parents = {str(parent) for name in files for parent in Path(name).parents}
    pending = [folder] if folder.is_dir() else []
    while pending:
        for path in sorted(pending.pop().iterdir()):
            name = str(path.relative_to(folder))
            if name in parents and path.is_dir() and not path.is_symlink():
                pending.append(path)
            elif name not in files or path.is_symlink():
                yield name


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Add the path to an error of reading or writing; only an error of opening has it."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def sha256(path: Path) -> str:
    """sha256 (hex) of a file; an OSError names it."""
    digest = hashlib.sha256()
    # Not file_digest: the server's image may have Python 3.10.
    with named(path), path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def damaged(manifest: Path, known: Digests) -> list[str]:
    """A sentence for every file that differs from the published one, with its folder."""
    root = manifest.parent.parent
    try:
        folders = json.loads(manifest.read_bytes())["folders"]
        return [
            f"{folder['what']}: {difference}"
            for folder in folders
            for difference in _read(root, folder, known)
        ]
    except FileNotFoundError:
        return [f"the list of the repository's files, which is missing ({manifest.name})"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"not readable ({type(error).__name__})"
        return [f"the list of the repository's files, which is {why}"]


def wait(manifest: Path, seconds: float) -> list[str]:
    """Wait until every file is as published; returns the differences left after `seconds`."""
    known: Digests = {}
    deadline, last = time.monotonic() + seconds, ""
    while differing := damaged(manifest, known):
        line = json.dumps({"volume": {"damaged": differing[:_LISTED]}})
        if line != last:
            print(line, flush=True)
            last = line
        if time.monotonic() >= deadline:
            break
        time.sleep(_PERIOD)
    return differing


def with_key(command: Sequence[str], file: Path) -> list[str]:
    """The command with a new key in place of the placeholder; the file holds the same key.

    A key of an earlier start is removed where the command asks for none.
    """
    file.unlink(missing_ok=True)
    if not any(PLACEHOLDER in argument for argument in command):
        return list(command)
    key = os.urandom(32).hex()
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as text:
        text.write(key)
    return [argument.replace(PLACEHOLDER, key) for argument in command]


def become(command: Sequence[str]) -> None:
    """Replace this process by the server, with the default handling of signals."""
    # Python ignores these signals, and a new program inherits that.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execvp(command[0], list(command))  # noqa: S606


def _read(root: Path, folder: Mapping[str, Any], known: Digests) -> list[str]:
    try:
        files, exact = folder["files"], folder["exact"]
        return list(differences(root / folder["path"], files, exact=exact, known=known))
    except OSError as error:
        return [f"{Path(str(error.filename)).name} cannot be read ({error.strerror})"]


if __name__ == "__main__":
    # The kernel drops signals for the first process of a container unless it handles them.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if left := wait(Path(sys.argv[1]), float(sys.argv[2])):
        sys.exit(f"{'; '.join(left[:_LISTED])}: not repaired within {sys.argv[2]} seconds")
    become(with_key(sys.argv[3:], KEY))
