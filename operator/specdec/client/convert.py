"""Convert public data sets to entries, and entries to the input files of genai-perf.

`specdec dataset` calls it. Records without a prompt are counted, and an invalid record is an error
that names its line.
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specdec.client.dataset import Entry, entry, prompt_of, records
from specdec.client.errors import BadRequestError

# The benchmark tools of the TensorRT-LLM backend estimate output lengths with this factor.
_TOKENS_PER_WORD = 1.3
_HUMAN = ("human", "user")


@dataclass(frozen=True)
class Converted:
    """The prompts of a converted file.

    Attributes:
        kind: format of the file.
        entries: its prompts.
        without: number of records without a prompt, such as conversations without a human turn.
    """

    kind: str
    entries: list[Entry]
    without: int = 0


def convert(text: str, name: str, kind: str | None = None) -> Converted:
    """Convert the content of a file to prompts.

    Args:
        text: JSON lines, one JSON array, or plain text with one prompt per line.
        name: of the file, for messages.
        kind: a key of `READERS`, `jsonl` or `text`; None detects the format.

    Raises:
        BadRequestError: no prompt, or a record in another format; the message names its line.
    """
    if kind == "text":
        return _converted(kind, [_entries_of_text(text, name)], name)
    if kind is None and not text.lstrip().startswith(("{", "[")):
        return convert(text, name, "text")
    listed = text.lstrip().startswith("[")
    values = _elements(text, name) if listed else records(text, name)
    if kind is None:
        first, location = next(values, (None, name))
        kind = _kind(first, location)
        values = _elements(text, name) if listed else records(text, name)
    reader = READERS[kind]
    groups = (reader(_object(value, location), location) for value, location in values)
    return _converted(kind, groups, name)


def _humaneval(record: dict[str, Any], location: str) -> list[Entry]:
    return [Entry(prompt_of(record.get("prompt"), location))]


def _alpaca(record: dict[str, Any], location: str) -> list[Entry]:
    """The input, then the instruction, as the backend's benchmark tools join them."""
    parts = [record.get("input") or "", record.get("instruction")]
    if not all(isinstance(part, str) for part in parts):
        raise BadRequestError(f"{location} has no instruction; write it as text beside input")
    prompt = prompt_of(" ".join(part for part in parts if part), location)
    return [Entry(prompt, _length(record.get("output")))]


def _sharegpt(record: dict[str, Any], location: str) -> list[Entry]:
    """The first human turn; the length of its answer limits the output tokens."""
    turns = record.get("conversations")
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise BadRequestError(f"{location} has no conversations; write a list of from and value")
    for turn, answer in zip(turns, [*turns[1:], {}], strict=True):
        if turn.get("from") in _HUMAN and turn.get("value"):
            return [Entry(prompt_of(turn["value"], location), _length(answer.get("value")))]
    return []


def _turns(record: dict[str, Any], location: str) -> list[Entry]:
    """One prompt per turn, as in NVIDIA's converter for the HumanEval data set of EAGLE."""
    turns = record.get("turns")
    if not isinstance(turns, list):
        raise BadRequestError(f"{location} has no turns; write a list of texts")
    return [Entry(prompt_of(turn, location)) for turn in turns]


def _entry(record: dict[str, Any], location: str) -> list[Entry]:
    return [entry(record, location)]


READERS: dict[str, Callable[[dict[str, Any], str], list[Entry]]] = {
    "humaneval": _humaneval,
    "alpaca": _alpaca,
    "sharegpt": _sharegpt,
    "turns": _turns,
    "jsonl": _entry,
}
# The format of a file, by the first of these keys that its first record has.
_KIND_BY_KEY = {
    "conversations": "sharegpt",
    "turns": "turns",
    "instruction": "alpaca",
    "task_id": "humaneval",
    "prompt": "jsonl",
}


def limited(entries: Sequence[Entry], limit: int | None, max_tokens: int | None) -> list[Entry]:
    """The first `limit` entries, with `max_tokens` unless that is None."""
    chosen = list(entries[:limit])
    return chosen if max_tokens is None else [replace(e, max_tokens=max_tokens) for e in chosen]


def genai_perf(entries: Sequence[Entry], max_tokens: int) -> str:
    """The input file with which genai-perf drives Triton's generate endpoint.

    Args:
        entries: the data set.
        max_tokens: for entries without a limit; the endpoint requires one.
    """
    data = [
        {"text_input": [entry.prompt], "max_tokens": [entry.max_tokens or max_tokens]}
        for entry in entries
    ]
    return json.dumps({"data": data}, ensure_ascii=False, indent=1) + "\n"


def genai_perf_lines(entries: Sequence[Entry]) -> str:
    """The input of `genai-perf profile --input-file`: JSON lines with `text`."""
    return "".join(f"{json.dumps({'text': e.prompt}, ensure_ascii=False)}\n" for e in entries)


def write(text: str, file: Path) -> None:
    """Write a file; it appears complete or not at all.

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


def _converted(kind: str, groups: Iterable[list[Entry]], name: str) -> Converted:
    """The result for the entries of each record."""
    records = list(groups)
    entries = [entry for group in records for entry in group]
    if not entries:
        raise BadRequestError(f"{name} holds no prompt; give a data set with at least one")
    return Converted(kind, entries, sum(not group for group in records))


def _entries_of_text(text: str, name: str) -> list[Entry]:
    return [
        Entry(prompt_of(line, f"{name}, line {number}"))
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip()
    ]


def _elements(text: str, name: str) -> Iterator[tuple[Any, str]]:
    """The elements of a JSON array, each with the file and line where it starts."""
    decoder = json.JSONDecoder()
    at, line, counted = text.index("[") + 1, 1, 0
    while True:
        at = _skip_space(text, at)
        line, counted = line + text.count("\n", counted, at), at
        location = f"{name}, line {line}"
        if text[at : at + 1] == "]":
            return
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise BadRequestError(
                f"{location} is not JSON ({error}); write a list of objects, or give --from text"
            ) from error
        yield value, location
        at = _skip_space(text, at)
        if text[at : at + 1] not in {",", "]"}:
            raise BadRequestError(
                f"{location} is followed by neither a comma nor a bracket; write a list of objects"
            )
        at += text[at] == ","


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _object(value: Any, location: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRequestError(f"{location} is not an object; write each record as a JSON object")
    return value


def _kind(first: Any, location: str) -> str:
    keys = first if isinstance(first, dict) else {}
    for key, kind in _KIND_BY_KEY.items():
        if key in keys:
            return kind
    raise BadRequestError(
        f"{location} has an unknown format; name it with --from {', '.join([*READERS, 'text'])}"
    )


def _length(answer: Any) -> int | None:
    count = len(answer.split()) if isinstance(answer, str) else 0
    return math.ceil(count * _TOKENS_PER_WORD) or None
