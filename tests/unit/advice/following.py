"""Follow the advice of messages: read the changes that they name, make them, and judge again."""

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from specdec.api.model import SpeculativeModel
from specdec.pipeline import validation
from specdec.tools.dry_run.admission import admit
from specdec.tools.dry_run.admission.definition import Schema, definition
from support.simulated_cluster import IMAGES

Json = dict[str, Any]
Path = tuple[str, ...]
# What separates the alternatives of a sentence. Each begins with a verb.
_ALTERNATIVES = re.compile(
    r"(?:, or|; or| or|,|;) (?=(?:set|remove|choose|raise|lower|leave|try|measure|correct|name)\b)"
)
_FIELDS = r"[A-Za-z][\w.]*(?:(?:,| and|, and) [A-Za-z][\w.]*)*"
_SET = re.compile(rf"(?:^|and )(?:set )?(?:the )?({_FIELDS}) to ([\w.-]*\w)(?=$|,|;| |\.)")
_REMOVE = re.compile(r"^remove ([\w., ]+?)(?:$|;|, (?:which|and set)|, so)")
_DEPTH = 5


@dataclass(frozen=True)
class Refusal:
    """The first reason to refuse a resource: its field, if known, and its message."""

    field: str
    message: str


@dataclass(frozen=True)
class Step:
    """One change: the new value at a path of the resource; None removes it."""

    path: Path
    value: Any


def refusal(body: Json) -> Refusal | None:
    """Return why the API server or the operator would refuse a resource; None if neither would."""
    verdict = admit(copy.deepcopy(body))
    if verdict.problems:
        problem = verdict.problems[0]
        return Refusal(problem.field, problem.detail or problem.message)
    metadata = {"namespace": "demo", "uid": "uid"} | verdict.body["metadata"]
    model = SpeculativeModel.parse({**verdict.body, "metadata": metadata})
    cause = validation.first_problem(model, IMAGES)
    return Refusal("", cause.message) if cause else None


def dead_ends(body: Json) -> list[str]:
    """Return the alternatives of a refusal that lead nowhere; empty if each one helps.

    An alternative helps if the changed resource is accepted, or if the advice of its next refusal
    helps. A refusal that was met before does not help, and input that only a person has does.
    """
    problem = refusal(body)
    assert problem is not None
    known = [(a, list(read(a, problem.field))) for a in alternatives(problem.message)]
    return [
        advice
        for advice, steps in known
        if steps and not _helps(applied(body, steps), (problem.message,))
    ]


def _helps(body: Json, met: tuple[str, ...]) -> bool:
    problem = refusal(body)
    if problem is None:
        return True
    if problem.message in met or len(met) > _DEPTH:
        return False
    known = [list(read(a, problem.field)) for a in alternatives(problem.message)]
    return not all(known) or any(
        _helps(applied(body, steps), (*met, problem.message)) for steps in known
    )


def alternatives(message: str) -> list[str]:
    """Return the alternatives that a message names after its first colon."""
    _, _, advice = message.partition(": ")
    return _ALTERNATIVES.split(advice) if advice else []


def read(advice: str, field: str) -> Iterator[Step]:
    """Read the changes of one alternative; none if it names no value.

    Args:
        advice: such as "set topology to SingleServer".
        field: the field of the refusal, which distinguishes fields of the same name.
    """
    for fields, value in _SET.findall(advice) if advice.startswith("set ") else ():
        for name in re.split(r", and |, | and ", fields):
            path = resolved(name, field)
            if path is not None and (typed := _typed(path, value)) is not None:
                yield Step(path, typed)
    if (match := _REMOVE.match(advice)) is None:
        return
    for name in re.split(r", | and ", match[1]):
        own = name in ("it", "the block")
        path = tuple(field.split(".")) if own else resolved(name, field)
        if path in paths() and len(path) > 1:
            yield Step(path, None)


def applied(body: Json, steps: list[Step]) -> Json:
    """Return the resource after the changes."""
    result = copy.deepcopy(body)
    for step in steps:
        part: Any = result
        for name in step.path[:-1]:
            part = part.setdefault(name, {}) if step.value is not None else part.get(name, {})
        if step.value is not None:
            part[step.path[-1]] = step.value
        else:
            part.pop(step.path[-1], None)
    return result


def resolved(name: str, field: str) -> Path | None:
    """Return the path that a name in a message means: the one that shares most with `field`."""
    names = tuple(name.split("."))
    near = tuple(field.split("."))

    def shared(path: Path) -> tuple[int, int]:
        same = next((i for i, (a, b) in enumerate(zip(path, near, strict=False)) if a != b), 99)
        return min(same, len(path), len(near)), -len(path)

    able = [path for path in paths() if path[-len(names) :] == names]
    return max(able, key=shared, default=None)


@cache
def paths() -> dict[Path, Schema]:
    """Return the schema of every field of the spec by its path."""
    return dict(_walk(("spec",), definition().schema["properties"]["spec"]))


def _walk(path: Path, schema: Schema) -> Iterator[tuple[Path, Schema]]:
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from _walk((*path, name), part)


def _typed(path: Path, value: str) -> Any:
    """Return a value of the field's type; None if the text is no such value."""
    schema = paths()[path]
    match schema.get("type"):
        case "boolean":
            return {"true": True, "false": False}.get(value)
        case "integer":
            return int(value) if value.isdigit() else None
        case _:
            return value if value in schema.get("enum", ()) else None
