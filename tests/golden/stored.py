"""Makes the files of a golden case, and reads the whole case from its files.

A case without a base has a file for each document. Every other case has `changes.yaml` with the
differences from its base, and a file for each document that is too different from the base.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from golden import delta
from golden.documents import digests, documents
from specdec.tools.dry_run.rendering import dump
from support.documents import load
from support.golden_cases import CASES, HERE, ROWS, generated

CHANGES = "changes.yaml"
DIGESTS = HERE / "digests.yaml"
_PLACE = "repository/"
Documents = Mapping[str, Any]


@dataclass(frozen=True)
class Entry:
    """A case in the list of cases."""

    about: str
    base: str | None = None
    repository: str = ""
    of: str = ""
    frontend: str = ""


@cache
def listed() -> dict[str, Entry]:
    """Return every case of `cases.yaml`."""
    return {case: Entry(**row) for case, row in ROWS.items()}


@cache
def current(case: str) -> Documents:
    """Return the documents that the operator generates now."""
    return documents(generated(case))


def files(case: str, trees: Mapping[str, Documents] | None = None) -> dict[str, str]:
    """Return the files that a case should have, by their path in its folder.

    Args:
        case: its name.
        trees: documents of every case; if absent, the operator generates them now.
    """
    entry = listed()[case]
    every = trees or {name: current(name) for name in (case, entry.base) if name}
    if entry.base is None:
        return {_file(name): _text(tree) for name, tree in every[case].items()}
    base, own = every[entry.base], every[case]
    whole, changed = {}, {}
    for name, tree in own.items():
        like = _like(name, base)
        change = None if like is None else delta.delta(base[like], tree)
        full = entry.repository == "full" and name.startswith(_PLACE)
        if change is None or (change and (full or _strange(change, tree, like == name))):
            whole[_file(name)] = _text(tree)
        elif change or like != name:
            changed[name] = ({} if like == name else {"like": like}) | change
    absent = [name for name in base if name not in own]
    changes = {"absent": absent, "changed": changed}
    kept = {key: value for key, value in changes.items() if value}
    return {**({CHANGES: dump(kept)} if kept else {}), **whole}


def digest_list() -> str:
    """Return the digests of every case. A changed digest causes a new build or rollout."""
    return dump({case: digests(generated(case)) for case in CASES})


def stored(case: str) -> dict[str, str]:
    """Return the files that a case has."""
    folder = expected(case)
    return {
        path.relative_to(folder).as_posix(): path.read_text("utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }


def expanded(case: str) -> dict[str, Any]:
    """Return every document of a case, from its files and the files of its bases."""
    texts = stored(case)
    changes = load(texts.pop(CHANGES, "{}"))
    base = listed()[case].base
    trees = expanded(base) if base else {}
    own = {name: tree for name, tree in trees.items() if name not in changes.get("absent", ())}
    for name, change in changes.get("changed", {}).items():
        own[name] = delta.apply(trees[change.pop("like", name)], change)
    return own | {_document(path): _tree(path, text) for path, text in texts.items()}


def expected(case: str) -> Path:
    """Return the folder of a case's files."""
    return HERE / case / "expected"


def _like(name: str, base: Documents) -> str | None:
    """Return the base's document to compare a document of this name with, or None."""
    if name in base:
        return name
    if name.startswith(_PLACE):
        # With two servers, the repository of each server is in a separate folder.
        model = name.rpartition("/repository/")[2].split("/", 1)[-1].split("/", 1)[-1]
        side = name.split("/")[1]
        choices = (_PLACE + model.replace("/", f"_{side}/", 1), _PLACE + model)
        return next((choice for choice in choices if choice in base), None)
    stem = name.rpartition("-")[0]
    return stem if stem in base else None


def _strange(change: delta.Delta, tree: Any, same: bool) -> bool:
    """Return whether a document shares too little with a document of another name."""
    return not same and 2 * _length(change) > _length(tree)


def _length(tree: Any) -> int:
    return _text(tree).count("\n")


def _file(name: str) -> str:
    return name if name.startswith(_PLACE) else f"{name}.yaml"


def _document(path: str) -> str:
    return path if path.startswith(_PLACE) else path.removesuffix(".yaml")


def _text(tree: Any) -> str:
    return "".join(f"{line}\n" for line in tree) if isinstance(tree, list) else dump(tree)


def _tree(path: str, text: str) -> Any:
    return text.splitlines() if path.startswith(_PLACE) else load(text)
