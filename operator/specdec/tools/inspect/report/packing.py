"""The files of a report: objects, status, logs, metrics and events, all without credentials."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from specdec.tools.inspect.redaction import Redactor
from specdec.tools.inspect.report.masking import literals, masked
from specdec.tools.inspect.snapshot import Snapshot

Json = dict[str, Any]
FORMAT = "specdec.dev/report/v1"
NOT_INCLUDED = "not-included.txt"
# The limit of all logs and metrics together, before compression.
TEXT_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class Material:
    """What was read of a resource.

    Attributes:
        about: versions and names.
        check: as `specdec check --json` prints it.
        objects: the resource and everything that belongs to it.
        snapshot: its status, logs, metrics and events, and notes about what was not read.
    """

    about: Json
    check: Json
    objects: list[Json]
    snapshot: Snapshot


def files(material: Material, secrets: Iterable[str] = ()) -> dict[str, bytes]:
    """The content of the archive by path.

    Args:
        material: what was read; it may contain credentials anywhere.
        secrets: values to remove, besides those of the objects' environment variables and what
            has the form of a credential.
    """
    known = (value for value in literals(material.objects) if not _is_harmless(value))
    redactor = Redactor([*secrets, *known])
    snapshot = material.snapshot
    notes = list(snapshot.notes)
    texts = {
        "about.json": _json({"format": FORMAT, **material.about}, redactor),
        "check.json": _json(material.check, redactor),
        "status.json": _json(snapshot.status, redactor),
        "events.json": _json({"events": snapshot.events}, redactor),
        **{_path(item): _yaml(item, redactor) for item in material.objects},
        **_bounded(snapshot, redactor, notes),
    }
    listed = "".join(f"{note}\n" for note in sorted(set(notes))) or "Everything was read.\n"
    texts[NOT_INCLUDED] = redactor.text(listed)
    return {redactor.text(path): text.encode("utf-8", "replace") for path, text in texts.items()}


def _bounded(snapshot: Snapshot, redactor: Redactor, notes: list[str]) -> dict[str, str]:
    """Logs and metrics by path, until their limit; the others become notes."""
    given = [(f"logs/{name}.log", text) for name, text in snapshot.logs.items()]
    given += [(f"metrics/{name}.txt", text) for name, text in snapshot.metrics.items()]
    kept, remaining = {}, TEXT_BYTES
    for path, text in given:
        size = len(text.encode("utf-8", "replace"))
        if size > remaining:
            notes.append(f"{path} is not included: all logs and metrics exceed their limit")
            continue
        remaining -= size
        kept[path] = redactor.text(text)
    return kept


def _path(body: Mapping[str, Any]) -> str:
    meta = body["metadata"]
    return f"objects/{meta['namespace']}/{body['kind'].lower()}-{meta['name']}.yaml"


def _yaml(body: Json, redactor: Redactor) -> str:
    cleaned = _cleaned(masked(body), redactor)
    # A folded line could hide the form of a credential from people who search for one.
    text: str = yaml.safe_dump(cleaned, sort_keys=False, allow_unicode=True, width=1_000_000)
    return text


def _json(value: Json, redactor: Redactor) -> str:
    return json.dumps(_cleaned(masked(value), redactor), indent=2, ensure_ascii=False) + "\n"


def _cleaned(value: Any, redactor: Redactor) -> Any:
    """Like `Redactor.value`, but also for keys: users choose those of labels and annotations."""
    if isinstance(value, Mapping):
        return {redactor.text(key): _cleaned(inner, redactor) for key, inner in value.items()}
    if isinstance(value, list):
        return [_cleaned(item, redactor) for item in value]
    return redactor.text(value) if isinstance(value, str) else value


def _is_harmless(value: str) -> bool:
    """Whether a value would occur in ordinary text: a number or a path."""
    return value.isdecimal() or value.startswith("/")
