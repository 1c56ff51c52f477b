"""The output folder: the state of a run, so that it can be resumed, and the files of the archive.

Every text passes the redactor. A file gets its name only when it is complete.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from specdec.client.errors import BadRequestError
from specdec.tools.inspect.redaction import Redactor

Json = dict[str, Any]
FORMAT = "specdec.dev/certify/v1"
PAGE = "index.html"
ARCHIVE = "specdec-certify.tar.gz"
_RUN = "run.json"
_ENTRIES = "entries"
_RESULT = "result.json"
_LOCK = ".lock"


class Folder:
    """One output folder.

    Args:
        path: created if it is missing.
        redactor: cleans every text before it is written.

    Raises:
        BadRequestError: the path cannot be a folder, or has other files.
    """

    def __init__(self, path: Path, redactor: Redactor) -> None:
        self.path = path
        self._redactor = redactor
        try:
            path.mkdir(parents=True, exist_ok=True)
            others = [item.name for item in path.iterdir() if item.name != _LOCK]
        except OSError as error:
            raise BadRequestError(
                f"--output {path} cannot be used ({error.strerror}); name a folder to write to"
            ) from error
        if others and _RUN not in others:
            raise BadRequestError(
                f"--output {path} has files of something else; name an empty or a new folder"
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out; raises BadRequestError if one uses the folder."""
        with (self.path / _LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise BadRequestError(
                    f"--output {self.path} is in use by another specdec certify; wait for it, or "
                    "name another folder"
                ) from error
            yield

    def run(self) -> Json | None:
        """The document of the run; None in a new folder."""
        return self._read(_RUN)

    def write_run(self, document: Mapping[str, Any]) -> None:
        """Replace the document of the run."""
        self._write_json(_RUN, document)

    def entry(self, name: str) -> Json | None:
        """The state of an entry; None if it was not started."""
        return self._read(f"{_ENTRIES}/{name}/{_RESULT}")

    def write_entry(self, name: str, document: Mapping[str, Any]) -> None:
        """Replace the state of an entry."""
        self._write_json(f"{_ENTRIES}/{name}/{_RESULT}", document)

    def write_file(self, entry: str, name: str, content: str | Mapping[str, Any]) -> str:
        """Write a file of an entry, text or JSON; returns its path in the folder.

        If `entry` is empty, the file belongs to the run itself.
        """
        path = f"{_ENTRIES}/{entry}/{name}" if entry else name
        if isinstance(content, str):
            self._write(path, self._redactor.text(content))
        else:
            self._write_json(path, content)
        return path

    def read_text(self, path: str) -> str:
        """The text of a file of the folder."""
        return (self.path / path).read_text("utf-8")

    def files(self) -> dict[str, bytes]:
        """Everything for the archive: path -> content."""
        return {
            str(file.relative_to(self.path)): file.read_bytes()
            for file in sorted(self.path.rglob("*"))
            if file.is_file() and file.name not in (_LOCK, ARCHIVE) and ".tmp" not in file.suffixes
        }

    def write_archive(self, content: bytes) -> Path:
        """Replace the archive; returns its path."""
        self._write_bytes(ARCHIVE, content)
        return self.path / ARCHIVE

    def _read(self, path: str) -> Json | None:
        file = self.path / path
        try:
            value: Json = json.loads(file.read_text("utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise BadRequestError(
                f"{file} cannot be read ({error}); name another folder with --output"
            ) from error
        if value.get("format") != FORMAT:
            raise BadRequestError(
                f"{file} is of another release (format {value.get('format')!r}); name another "
                "folder with --output"
            )
        return value

    def _write_json(self, path: str, document: Mapping[str, Any]) -> None:
        cleaned = self._redactor.value({"format": FORMAT, **document})
        self._write(path, json.dumps(cleaned, indent=2, ensure_ascii=False) + "\n")

    def _write(self, path: str, text: str) -> None:
        self._write_bytes(path, text.encode("utf-8", "replace"))

    def _write_bytes(self, path: str, content: bytes) -> None:
        file = self.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        scratch = file.with_name(f".{file.name}.{os.getpid()}.tmp")
        try:
            scratch.write_bytes(content)
            scratch.replace(file)
        finally:
            scratch.unlink(missing_ok=True)
