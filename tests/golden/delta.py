"""The difference between two documents, as entries whose paths have no line numbers.

An item of a list has an identity: the name of a container, the flag of an argument, the name of a
tensor. So a delta does not change when its list changes elsewhere. An entry of an added item names
the item before it, because order matters in lists.
"""

import json
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

_IDENTITIES = ("name", "type", "role", "key", "device", "port")
_PLAIN = re.compile(r"[A-Za-z_][\w-]*")
_NAME = re.compile(r"[\w .:/<>#@-]+")
_STATEMENT = re.compile(r'\s*(\w+)(?: \{.*?\b(?:name|key): "([^"]*)")?')
_FLAG = re.compile(r"--[\w-]+")
_SHORT = 80
# A list with more changed lines than this is easier to read whole.
_MANY = 20
_SECTIONS = ("set", "add", "remove", "insert")
Delta = dict[str, Any]


class StaleError(Exception):
    """An entry names a place that the base lacks."""


def delta(base: Any, tree: Any) -> Delta:
    """Return the entries that turn the base into the tree; empty if they are equal."""
    change = _empty()
    _compare(base, tree, "", change)
    return {section: change[section] for section in _SECTIONS if change[section]}


def apply(base: Any, change: Delta) -> Any:
    """Apply a delta to a base, and return the tree.

    Raises:
        StaleError: an entry names a place that the base lacks.
    """
    unused = {(section, path) for section in _SECTIONS for path in change.get(section, ())}
    tree = _applied(base, "", change, unused)
    if unused:
        raise StaleError(f"the base lacks {sorted(path for _, path in unused)}")
    return tree


def identities(items: Sequence[Any]) -> list[str]:
    """Return a name for each item; each name is unique in the list."""
    names: dict[str, None] = {}
    step = last = ""
    for item in items:
        # Steps of an ensemble repeat their statements, so the step is part of the identity.
        if isinstance(item, str) and item.strip().startswith("model_name: "):
            step = item.split('"')[1]
        # The flag before a value identifies the value.
        value = _FLAG.fullmatch(str(last)) and not str(item).startswith("--")
        plain = name = f"{last} value" if value else _identity(item, step)
        last = item
        count = 1
        while name in names:
            count += 1
            name = f"{plain}#{count}"
        names[name] = None
    return list(names)


def _identity(item: Any, step: str) -> str:
    if isinstance(item, dict):
        own = next((item[key] for key in _IDENTITIES if key in item), None)
        return str(own) if own is not None else json.dumps(item)
    if not isinstance(item, str):
        return json.dumps(item)
    if item.startswith("--"):
        return item.partition("=")[0]
    statement = _STATEMENT.match(item)
    if statement and (statement[2] or item.partition(": ")[0].isidentifier()):
        prefix = f"{step} " if item.startswith(" ") else ""
        return prefix + " ".join(filter(None, statement.groups()))
    return item


def _empty() -> Delta:
    return {"set": {}, "add": {}, "remove": [], "insert": {}}


def _compare(base: Any, tree: Any, path: str, change: Delta) -> None:
    if isinstance(base, dict) and isinstance(tree, dict):
        change["remove"] += [_member(path, key) for key in base if key not in tree]
        new = {key: value for key, value in tree.items() if key not in base}
        if new:
            change["add"][path] = new
        for key in base:
            if key in tree:
                _compare(base[key], tree[key], _member(path, key), change)
    elif isinstance(base, list) and isinstance(tree, list) and not _atomic(base, tree):
        _compare_lists(base, tree, path, change)
    # The comparison is of texts, because 1 equals True in Python.
    elif json.dumps(base) != json.dumps(tree):
        change["set"][path] = tree


def _compare_lists(base: list[Any], tree: list[Any], path: str, change: Delta) -> None:
    """Add the entries for a list, or the whole list if that is shorter or easier to read."""
    part = _empty()
    _compare_items(base, tree, path, part)
    changed, whole = sum(_lines(section) for section in part.values() if section), _lines(tree)
    if changed > (min(whole, max(whole // 2, _MANY)) if _plain(tree) else whole):
        change["set"][path] = tree
        return
    for section in _SECTIONS:
        if section == "remove":
            change[section] += part[section]
        else:
            change[section] |= part[section]


def _compare_items(base: list[Any], tree: list[Any], path: str, change: Delta) -> None:
    old, new = identities(base), identities(tree)
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    kept = None
    for tag, start, end, other, last in matcher.get_opcodes():
        if tag == "equal":
            for left, right in zip(range(start, end), range(other, last), strict=True):
                _compare(base[left], tree[right], _item(path, old[left]), change)
            kept = old[end - 1]
            continue
        change["remove"] += [_item(path, name) for name in old[start:end]]
        if last > other:
            change["insert"].setdefault(path, []).append(
                {"after": kept, "items": tree[other:last]}
            )


def _lines(tree: Any) -> int:
    """Return about how many lines a tree takes."""
    if not isinstance(tree, dict | list) or not tree:
        return 1
    return sum(_lines(item) for item in (tree.values() if isinstance(tree, dict) else tree))


def _atomic(base: list[Any], tree: list[Any]) -> bool:
    """Return whether a list is so short that the whole list is easier to read."""
    return _plain([*base, *tree]) and max(len(json.dumps(base)), len(json.dumps(tree))) < _SHORT


def _plain(items: list[Any]) -> bool:
    return all(not isinstance(item, dict | list) for item in items)


def _applied(base: Any, path: str, change: Delta, unused: set[tuple[str, str]]) -> Any:
    if path in change.get("set", {}):
        unused.discard(("set", path))
        return change["set"][path]
    if isinstance(base, dict):
        tree = dict(_kept(((_member(path, k), k, v) for k, v in base.items()), change, unused))
        if path in change.get("add", {}):
            unused.discard(("add", path))
            tree |= change["add"][path]
        return tree
    if isinstance(base, list):
        places = ((_item(path, k), k, v) for k, v in zip(identities(base), base, strict=True))
        kept = list(_kept(places, change, unused))
        if path in change.get("insert", {}):
            unused.discard(("insert", path))
            kept = _inserted(kept, path, change["insert"][path])
        return [value for _, value in kept]
    return base


def _kept(
    members: Iterator[tuple[str, str, Any]], change: Delta, unused: set[tuple[str, str]]
) -> Iterator[tuple[str, Any]]:
    """Yield the members that the delta does not remove, with the changes of each member."""
    for path, key, value in members:
        if path in change.get("remove", ()):
            unused.discard(("remove", path))
        else:
            yield key, _applied(value, path, change, unused)


def _inserted(
    kept: list[tuple[str, Any]], path: str, runs: Sequence[Any]
) -> list[tuple[str, Any]]:
    """Insert the added items after their anchors; an anchor is always an item of the base."""
    for run in runs:
        names = [name for name, _ in kept]
        if run["after"] is not None and run["after"] not in names:
            raise StaleError(f"the base lacks {_item(path, run['after'])}")
        place = 0 if run["after"] is None else names.index(run["after"]) + 1
        kept[place:place] = [("", item) for item in run["items"]]
    return kept


def _member(path: str, key: str) -> str:
    if not _PLAIN.fullmatch(key):
        return f"{path}[{json.dumps(key)}]"
    return f"{path}.{key}" if path else key


def _item(path: str, name: str) -> str:
    return f"{path}[{name if _NAME.fullmatch(name) else json.dumps(name)}]"
