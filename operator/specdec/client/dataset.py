"""Read and write data sets of prompts: JSON lines with `prompt` and an optional `max_tokens`.

The command line, verification and benchmark use it. An invalid line is an error that names the
line.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.client.errors import BadRequestError

BUILT_IN = "the built-in prompts"
_SHAPE = '{"prompt": "...", "max_tokens": 64}'


@dataclass(frozen=True)
class Entry:
    """One prompt.

    Attributes:
        prompt: the text to continue.
        max_tokens: maximum of new tokens; None applies the caller's limit.
    """

    prompt: str
    max_tokens: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The JSON object of a line in a data set."""
        limit = {} if self.max_tokens is None else {"max_tokens": self.max_tokens}
        return {"prompt": self.prompt, **limit}


def built_in() -> list[Entry]:
    """About a hundred short prompts, most of them Python, some of them prose."""
    file = Path(__file__).with_name("prompts.jsonl")
    return parse(file.read_text("utf-8"), BUILT_IN)


def read(file: Path) -> list[Entry]:
    """The entries of a file.

    Raises:
        BadRequestError: the file cannot be read, has no prompt, or has an invalid line.
    """
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequestError(f"{file} cannot be read ({error}); name a text file") from error
    return parse(text, str(file))


def parse(text: str, name: str) -> list[Entry]:
    """The entries of JSON lines; other keys and empty lines are ignored.

    Args:
        text: the lines.
        name: of the file, for messages.

    Raises:
        BadRequestError: no prompt, or an invalid line; the message has its number.
    """
    entries = [entry(value, location) for value, location in records(text, name)]
    if not entries:
        raise BadRequestError(f"{name} is empty; write one {_SHAPE} a line")
    return entries


def lines(entries: Iterable[Entry]) -> str:
    """The entries as JSON lines."""
    return "".join(f"{json.dumps(e.to_json(), ensure_ascii=False)}\n" for e in entries)


def records(text: str, name: str) -> Iterator[tuple[Any, str]]:
    """The values of JSON lines, each with its file and line; empty lines are skipped.

    Raises:
        BadRequestError: a line is not JSON.
    """
    # splitlines() would also split at Unicode line separators, which JSON strings may contain.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        location = f"{name}, line {number}"
        try:
            yield json.loads(line), location
        except (ValueError, RecursionError) as error:
            raise BadRequestError(f"{location} is not JSON ({error}); write {_SHAPE}") from error


def prompt_of(value: Any, location: str) -> str:
    """Validate a prompt.

    Raises:
        BadRequestError: the value is no text, is empty, or cannot be encoded in UTF-8.
    """
    if not isinstance(value, str) or not value:
        raise BadRequestError(f"{location} has no prompt; write {_SHAPE}")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise BadRequestError(
            f"{location}: the prompt has half a surrogate pair; write complete characters"
        )
    return value


def entry(value: Any, location: str) -> Entry:
    """Convert a JSON value to an entry.

    Raises:
        BadRequestError: the value is no valid entry.
    """
    prompt = prompt_of(value.get("prompt") if isinstance(value, dict) else None, location)
    limit = value.get("max_tokens")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise BadRequestError(f"{location}: max_tokens is {limit!r}; set it to 1 or more")
    return Entry(prompt, limit)
