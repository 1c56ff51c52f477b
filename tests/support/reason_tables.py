"""Generates tables of a document, a list of Argo CD and an alert from the condition reasons.

`make generate` writes them; tests/unit/api/test_reasons.py compares them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from specdec.api.condition_types import Type
from specdec.api.reasons import REASONS, Health, Reason, Severity

ROOT = Path(__file__).parents[2]
ANY = "Any condition"
_HEADER = "| Reason | Meaning | Resolution |\n|---|---|---|\n"
_TABLE = re.compile(r"()(?:^\|.*\n)+()", re.MULTILINE)
_LUA = re.compile(r"(local degraded = \{\n).*?(\n {4}\})", re.DOTALL)
_ALERT = re.compile(r'(type="EnginesReady", status="False", reason!~")[^"]*(")')


def section(reason: Reason) -> str:
    """Return the heading of docs/conditions.md that lists the reason."""
    return ANY if set(reason.types) == set(Type) else str(reason.types[0])


def documented(text: str) -> str:
    """Return docs/conditions.md with the table of each section replaced.

    Raises:
        ValueError: the document lacks the section of a reason, or a section lacks its table.
    """
    head, *parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    rows = {name: "".join(_rows(name)) for name in dict.fromkeys(map(section, REASONS))}
    for number, part in enumerate(parts):
        name = part.partition("\n")[0].removeprefix("## ")
        table = rows.pop(name)
        parts[number] = _replaced(_TABLE, part, _HEADER + table, name)
    if rows:
        raise ValueError(f"docs/conditions.md lacks the sections {', '.join(rows)}: add them")
    return "".join([head, *parts])


def _rows(name: str) -> Iterator[str]:
    for reason in REASONS:
        if section(reason) == name:
            end = f" {reason.resolution} |" if reason.resolution else " |"
            yield f"| `{reason}` | {reason.meaning} |{end}\n"


def judged(text: str) -> str:
    """Return Argo CD's ConfigMap with the list of reasons that it reports as Degraded.

    The list needs no reasons of failures, which make the phase `Failed`.
    """
    names = sorted(
        reason
        for reason in REASONS
        if reason.severity is Severity.BLOCKED and reason.health is Health.DEGRADED
    )
    lines = "\n".join(f"      {name} = true," for name in names)
    return _replaced(_LUA, text, lines, "the list `degraded`")


def alerted(text: str) -> str:
    """Return the alert rules with the reasons of EnginesReady that are no problem."""
    names = "|".join(
        reason
        for reason in REASONS
        if reason.severity is Severity.PROGRESS and Type.ENGINES_READY in reason.types
    )
    return _replaced(_ALERT, text, names, "the alert on EnginesReady")


def _replaced(pattern: re.Pattern[str], text: str, value: str, name: str) -> str:
    """Return the text with `value` in the first match, between the pattern's two groups."""
    changed, count = pattern.subn(lambda m: f"{m[1]}{value}{m[2]}", text, count=1)
    if not count:
        raise ValueError(f"{name} is not there to be written: put it back")
    return changed


OUTPUTS: Mapping[str, Callable[[str], str]] = {
    "docs/conditions.md": documented,
    "manifests/argocd/argocd-cm.yaml": judged,
    "manifests/monitoring/rules.yaml": alerted,
}


def outdated(root: Path = ROOT) -> list[str]:
    """Return the files that differ from what would be generated."""
    return [
        name for name, write in OUTPUTS.items() if _text(root, name) != write(_text(root, name))
    ]


def _text(root: Path, name: str) -> str:
    return (root / name).read_text(encoding="utf-8")


if __name__ == "__main__":
    for path, generate in OUTPUTS.items():
        (ROOT / path).write_text(generate(_text(ROOT, path)), encoding="utf-8")
