"""Data sets of others into ours, and ours into those of load generators."""

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specdec.client.dataset import Entry, entry, prompt_of, records
from specdec.client.errors import BadRequestError

# The rule of the TensorRT-LLM backend's benchmark tools for how long an answer may get.
_TOKENS_PER_WORD = 1.3
_HUMAN = ("human", "user")


@dataclass(frozen=True)
class Converted:
    """What a file held.

    Attributes:
        kind: its format.
        entries: its prompts.
        without: records that hold no prompt, for example conversations nobody began.
    """

    kind: str
    entries: list[Entry]
    without: int = 0


def convert(text: str, name: str, kind: str | None = None) -> Converted:
    """The prompts of a file.

    Args:
        text: its content: JSON lines, one JSON array, or plain text with a prompt a line.
        name: where it is from, for errors.
        kind: a key of `READERS`, `jsonl` or `text`; None finds out.

    Raises:
        BadRequestError: no prompt in it, or a record that is not of that format; with its line.
    """
    if kind == "text":
        return _whole(kind, [_entries_of_text(text, name)], name)
    if kind is None and not text.lstrip().startswith(("{", "[")):
        return convert(text, name, "text")
    listed = text.lstrip().startswith("[")
    found = _elements(text, name) if listed else records(text, name)
    if kind is None:
        first, place = next(found, (None, name))
        kind = _kind(first, place)
        found = _elements(text, name) if listed else records(text, name)
    reader = READERS[kind]
    return _whole(kind, (reader(_object(value, place), place) for value, place in found), name)


def _humaneval(given: dict[str, Any], place: str) -> list[Entry]:
    return [Entry(prompt_of(given.get("prompt"), place))]


def _alpaca(given: dict[str, Any], place: str) -> list[Entry]:
    """As the backend's benchmark tools put it together: the input, then the instruction."""
    parts = [given.get("input") or "", given.get("instruction")]
    if not all(isinstance(part, str) for part in parts):
        raise BadRequestError(f"{place} has no instruction; write it as text beside input")
    prompt = prompt_of(" ".join(part for part in parts if part), place)
    return [Entry(prompt, _length(given.get("output")))]


def _sharegpt(given: dict[str, Any], place: str) -> list[Entry]:
    """The first thing that the human says; what comes back tells how long an answer may get."""
    turns = given.get("conversations")
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise BadRequestError(f"{place} has no conversations; write a list of from and value")
    for turn, answer in zip(turns, [*turns[1:], {}], strict=True):
        if turn.get("from") in _HUMAN and turn.get("value"):
            return [Entry(prompt_of(turn["value"], place), _length(answer.get("value")))]
    return []


def _turns(given: dict[str, Any], place: str) -> list[Entry]:
    """Every turn is a prompt of its own, as in the guides' converter for HumanEval of EAGLE."""
    turns = given.get("turns")
    if not isinstance(turns, list):
        raise BadRequestError(f"{place} has no turns; write a list of texts")
    return [Entry(prompt_of(turn, place)) for turn in turns]


def _ours(given: dict[str, Any], place: str) -> list[Entry]:
    return [entry(given, place)]


READERS: dict[str, Callable[[dict[str, Any], str], list[Entry]]] = {
    "humaneval": _humaneval,
    "alpaca": _alpaca,
    "sharegpt": _sharegpt,
    "turns": _turns,
    "jsonl": _ours,
}
# What tells a format: the first key that a record has.
_TOLD_BY = {
    "conversations": "sharegpt",
    "turns": "turns",
    "instruction": "alpaca",
    "task_id": "humaneval",
    "prompt": "jsonl",
}


def limited(entries: Sequence[Entry], limit: int | None, max_tokens: int | None) -> list[Entry]:
    """The first `limit` entries, all with `max_tokens` where it is given."""
    chosen = list(entries[:limit])
    return chosen if max_tokens is None else [replace(e, max_tokens=max_tokens) for e in chosen]


def genai_perf(entries: Sequence[Entry], max_tokens: int) -> str:
    """What genai-perf hands to perf_analyzer for Triton's generate endpoint.

    Args:
        entries: the data set.
        max_tokens: for prompts that do not say; the endpoint needs it.
    """
    data = [
        {"text_input": [one.prompt], "max_tokens": [one.max_tokens or max_tokens]}
        for one in entries
    ]
    return json.dumps({"data": data}, ensure_ascii=False, indent=1) + "\n"


def genai_perf_lines(entries: Sequence[Entry]) -> str:
    """What `genai-perf profile --input-file` reads: JSON lines with `text`."""
    return "".join(f"{json.dumps({'text': e.prompt}, ensure_ascii=False)}\n" for e in entries)


def write(text: str, file: Path) -> None:
    """Write a file whole or not at all: beside it first, then under its name.

    Raises:
        BadRequestError: it cannot be written.
    """
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, "utf-8")
        temporary.replace(file)
    except OSError as error:
        raise BadRequestError(f"{file} cannot be written ({error}); name another file") from error
    finally:
        temporary.unlink(missing_ok=True)


def _whole(kind: str, found: Any, name: str) -> Converted:
    groups = list(found)
    entries = [one for group in groups for one in group]
    if not entries:
        raise BadRequestError(f"{name} holds no prompt; give a data set with at least one")
    return Converted(kind, entries, sum(not group for group in groups))


def _entries_of_text(text: str, name: str) -> list[Entry]:
    return [
        Entry(prompt_of(line, f"{name}, line {number}"))
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip()
    ]


def _elements(text: str, name: str) -> Iterator[tuple[Any, str]]:
    """Elements of a JSON array with the lines they begin at."""
    decoder = json.JSONDecoder()
    at, line, counted = text.index("[") + 1, 1, 0
    while True:
        at = _past(text, at)
        line, counted = line + text.count("\n", counted, at), at
        place = f"{name}, line {line}"
        if text[at : at + 1] == "]":
            return
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise BadRequestError(
                f"{place} is no JSON ({error}); write a list of objects, or give --from text"
            ) from error
        yield value, place
        at = _past(text, at)
        if text[at : at + 1] not in {",", "]"}:
            raise BadRequestError(
                f"{place} is followed by neither a comma nor a bracket; write a list of objects"
            )
        at += text[at] == ","


def _past(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRequestError(f"{place} is no object; write one record as one JSON object")
    return value


def _kind(first: Any, place: str) -> str:
    keys = first if isinstance(first, dict) else {}
    for key, kind in _TOLD_BY.items():
        if key in keys:
            return kind
    raise BadRequestError(
        f"{place} is of no known format; name it: --from {', '.join([*READERS, 'text'])}"
    )


def _length(answer: Any) -> int | None:
    words = len(answer.split()) if isinstance(answer, str) else 0
    return math.ceil(words * _TOKENS_PER_WORD) or None
