"""What one document differs in from another, in entries that name where and never a line number.

Items of a list go by an identity (the name of a container, the flag of an argument, the name of a
tensor), so that a delta does not change when the list changes elsewhere. Where an item stands is
part of the delta: it is inserted after another.
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
# Entries of one list that nobody reads one by one.
_MANY = 20
_SECTIONS = ("set", "add", "remove", "insert")
Delta = dict[str, Any]


class StaleError(Exception):
    """An entry names what the base lacks."""


def delta(base: Any, tree: Any) -> Delta:
    """What turns the base into the tree; empty if they are equal."""
    found: Delta = {"set": {}, "add": {}, "remove": [], "insert": {}}
    _compare(base, tree, "", found)
    return {section: found[section] for section in _SECTIONS if found[section]}


def apply(base: Any, change: Delta) -> Any:
    """The tree of a base and a delta.

    Raises:
        StaleError: an entry names a place that the base lacks.
    """
    unused = {(section, path) for section in _SECTIONS for path in change.get(section, ())}
    tree = _applied(base, "", change, unused)
    if unused:
        raise StaleError(f"the base lacks {sorted(path for _, path in unused)}")
    return tree


def identities(items: Sequence[Any]) -> list[str]:
    """A name for each item that no other item of the list has."""
    names: dict[str, None] = {}
    step = last = ""
    for item in items:
        # Of the statements inside an ensemble, the step is what tells them apart.
        if isinstance(item, str) and item.strip().startswith("model_name: "):
            step = item.split('"')[1]
        # A value goes by the flag before it.
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


def _compare(base: Any, tree: Any, path: str, found: Delta) -> None:
    if isinstance(base, dict) and isinstance(tree, dict):
        found["remove"] += [_member(path, key) for key in base if key not in tree]
        new = {key: value for key, value in tree.items() if key not in base}
        if new:
            found["add"][path] = new
        for key in base:
            if key in tree:
                _compare(base[key], tree[key], _member(path, key), found)
    elif isinstance(base, list) and isinstance(tree, list) and not _atomic(base, tree):
        _compare_lists(base, tree, path, found)
    # As text, since 1 equals True.
    elif json.dumps(base) != json.dumps(tree):
        found["set"][path] = tree


def _compare_lists(base: list[Any], tree: list[Any], path: str, found: Delta) -> None:
    """What changes in a list, or all of it where that is shorter."""
    part: Delta = {"set": {}, "add": {}, "remove": [], "insert": {}}
    _compare_items(base, tree, path, part)
    changed, whole = sum(_lines(section) for section in part.values() if section), _lines(tree)
    if changed > (min(whole, max(whole // 2, _MANY)) if _plain(tree) else whole):
        found["set"][path] = tree
        return
    for section in _SECTIONS:
        if section == "remove":
            found[section] += part[section]
        else:
            found[section] |= part[section]


def _compare_items(base: list[Any], tree: list[Any], path: str, found: Delta) -> None:
    old, new = identities(base), identities(tree)
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    kept = None
    for tag, start, end, other, last in matcher.get_opcodes():
        if tag == "equal":
            for left, right in zip(range(start, end), range(other, last), strict=True):
                _compare(base[left], tree[right], _item(path, old[left]), found)
            kept = old[end - 1]
            continue
        found["remove"] += [_item(path, name) for name in old[start:end]]
        if last > other:
            found["insert"].setdefault(path, []).append({"after": kept, "items": tree[other:last]})


def _lines(tree: Any) -> int:
    """How many lines a tree takes, nearly."""
    if not isinstance(tree, dict | list) or not tree:
        return 1
    return sum(_lines(item) for item in (tree.values() if isinstance(tree, dict) else tree))


def _atomic(base: list[Any], tree: list[Any]) -> bool:
    """Whether a list reads best as a whole."""
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
    """Members that are not removed, each with its own changes."""
    for path, key, value in members:
        if path in change.get("remove", ()):
            unused.discard(("remove", path))
        else:
            yield key, _applied(value, path, change, unused)


def _inserted(
    kept: list[tuple[str, Any]], path: str, runs: Sequence[Any]
) -> list[tuple[str, Any]]:
    """Items with those that are inserted; an anchor is never one of the inserted."""
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
