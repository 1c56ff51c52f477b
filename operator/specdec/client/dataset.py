"""Data sets of prompts: JSON lines with `prompt` and, where wanted, `max_tokens`."""

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
        max_tokens: new tokens at most; None leaves it to who asks.
    """

    prompt: str
    max_tokens: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The entry as a line of a data set holds it."""
        limit = {} if self.max_tokens is None else {"max_tokens": self.max_tokens}
        return {"prompt": self.prompt, **limit}


def built_in() -> list[Entry]:
    """About a hundred short prompts, most of them Python, some of them prose."""
    file = Path(__file__).with_name("prompts.jsonl")
    return parse(file.read_text("utf-8"), BUILT_IN)


def read(file: Path) -> list[Entry]:
    """The entries of a file.

    Raises:
        BadRequestError: it cannot be read, holds no prompt, or a line is no entry.
    """
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequestError(f"{file} cannot be read ({error}); name a text file") from error
    return parse(text, str(file))


def parse(text: str, name: str) -> list[Entry]:
    """The entries of JSON lines; other keys and empty lines are passed over.

    Args:
        text: the lines.
        name: where they are from, for errors.

    Raises:
        BadRequestError: there is no prompt, or a line is no entry; with the line's number.
    """
    entries = [entry(given, place) for given, place in records(text, name)]
    if not entries:
        raise BadRequestError(f"{name} is empty; write one {_SHAPE} a line")
    return entries


def lines(entries: Iterable[Entry]) -> str:
    """The entries as JSON lines."""
    return "".join(f"{json.dumps(e.to_json(), ensure_ascii=False)}\n" for e in entries)


def records(text: str, name: str) -> Iterator[tuple[Any, str]]:
    """Values of JSON lines with their places, empty lines passed over.

    Raises:
        BadRequestError: a line is no JSON.
    """
    # Not splitlines(): JSON may hold line separators of Unicode as they are.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        place = f"{name}, line {number}"
        try:
            yield json.loads(line), place
        except (ValueError, RecursionError) as error:
            raise BadRequestError(f"{place} is no JSON ({error}); write {_SHAPE}") from error


def prompt_of(value: Any, place: str) -> str:
    """A prompt that can be sent.

    Raises:
        BadRequestError: no text, an empty one, or one that UTF-8 cannot carry.
    """
    if not isinstance(value, str) or not value:
        raise BadRequestError(f"{place} has no prompt; write {_SHAPE}")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise BadRequestError(f"{place}: the prompt has half a surrogate pair; write whole ones")
    return value


def entry(given: Any, place: str) -> Entry:
    """The entry that a value of JSON is.

    Raises:
        BadRequestError: it is none.
    """
    prompt = prompt_of(given.get("prompt") if isinstance(given, dict) else None, place)
    limit = given.get("max_tokens")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise BadRequestError(f"{place}: max_tokens is {limit!r}; set it to 1 or more")
    return Entry(prompt, limit)
