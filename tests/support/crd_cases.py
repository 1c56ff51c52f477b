"""Resources that the CRD accepts or refuses, expanded from tables in tests/controlplane/resources.

A table is a list of cases. A case names its base, which is another good case or a resource of
`bases.yaml`, and holds the differences: `patch` sets the value at a dotted path, `remove` deletes
paths. A refused case also names the field and a part of the message. If the server refuses a
change, `after` names the good case that the server stores first; both then have the same name.
"""

import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

TABLES = Path(__file__).parents[1] / "controlplane" / "resources"
KEYS = {"name", "base", "patch", "remove", "field", "message", "after"}


@dataclass(frozen=True)
class Case:
    """A resource; a refused resource also has the cause that the server must report."""

    name: str
    body: dict[str, Any]
    field: str = ""
    message: str = ""
    after: str = ""

    def resource(self) -> dict[str, Any]:
        """Return a copy that the test may change."""
        return copy.deepcopy(self.body)


class _Loader(yaml.CSafeLoader):
    """Loads YAML with `!repeat {text: a, times: 9}`, which stands for very long text."""


def _repeated(loader: yaml.SafeLoader, node: yaml.Node) -> str:
    assert isinstance(node, yaml.MappingNode)
    value = loader.construct_mapping(node)
    return str(value.get("prefix", "")) + str(value["text"]) * int(value["times"])


_Loader.add_constructor("!repeat", _repeated)


@cache
def good() -> tuple[Case, ...]:
    """Return every resource that the server accepts."""
    return tuple(Case(row["name"], expanded(row)) for row in _rows("good-*.yaml"))


@cache
def bad() -> tuple[Case, ...]:
    """Return every resource that the server refuses, with the cause."""
    return tuple(
        Case(row["name"], expanded(row), row["field"], row["message"], row.get("after", ""))
        for row in _rows("bad-*.yaml")
    )


def good_resource(name: str) -> dict[str, Any]:
    """Return a copy of the good resource of this name."""
    (case,) = (case for case in good() if case.name == name)
    return case.resource()


@cache
def _bases() -> dict[str, Any]:
    bases: dict[str, Any] = _load(TABLES / "bases.yaml")
    rows = {row["name"]: row for row in _rows("good-*.yaml")}
    assert not rows.keys() & bases.keys(), "a base and a case share a name"
    return bases | rows


@cache
def _rows(pattern: str) -> tuple[dict[str, Any], ...]:
    rows = [row for path in sorted(TABLES.glob(pattern)) for row in _load(path)]
    names = [row["name"] for row in rows]
    assert len(names) == len(set(names)), f"two cases of {pattern} share a name"
    for row in rows:
        assert row.keys() <= KEYS, f"{row['name']}: unknown key {row.keys() - KEYS}"
    return tuple(rows)


def _load(path: Path) -> Any:
    return yaml.load(path.read_text("utf-8"), Loader=_Loader)  # noqa: S506 (a SafeLoader)


def expanded(row: dict[str, Any]) -> dict[str, Any]:
    """Return the whole resource of a row."""
    base = _bases()[row["base"]]
    body = copy.deepcopy(base) if "kind" in base else expanded(base)
    body["metadata"]["name"] = row.get("after", row["name"])
    for path in row.get("remove", []):
        *parents, last = path.split(".")
        del _place(body, parents)[last]
    for path, value in row.get("patch", {}).items():
        *parents, last = path.split(".")
        place = _place(body, parents)
        assert place.get(last, ...) != value, f"{row['name']}: {path} is {value} in the base"
        place[last] = copy.deepcopy(value)
    return body


def _place(body: dict[str, Any], parents: list[str]) -> dict[str, Any]:
    """Return the map at a path; create maps that the base lacks."""
    place = body
    for part in parents:
        place = place.setdefault(part, {})
    return place
