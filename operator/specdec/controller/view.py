"""The objects of one kind as a list and a watch have shown them; pure, without requests.

`Views` fills a view and reads from it. Versions only grow: a view never goes back to an older
version of an object, whatever a server that lags sends.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from specdec.api import names
from specdec.api.model import KIND
from specdec.controller.children import owner_keys
from specdec.pipeline.observed import POD_JOB

Json = dict[str, Any]
Name = tuple[str, str]
"""Namespace and name of an object."""
Change = tuple[Json | None, Json | None]
"""An object before and after a change; None where it does not exist."""
SERVICE_LABEL = "kubernetes.io/service-name"
# The labels by which the objects of a resource are selected.
_INDEXED = frozenset({names.MODEL, names.CLAIM, POD_JOB, SERVICE_LABEL})
_SHARER = names.sharer("")
# Kinds whose labels the operator does not restore.
_OTHERS = frozenset({"EndpointSlice", "Pod", KIND})


@dataclass
class View:
    """One kind of objects, in one namespace or (None) in all.

    An object is in doubt if the view may have a wrong state of it. An object that leaves the view
    may exist without the operator's label, so it is in doubt as well.

    Attributes:
        connected: whether the view follows the API server now.
        denied: whether the API server refused to list the kind the last time.
    """

    api_version: str
    kind: str
    namespace: str | None = None
    connected: bool = False
    denied: bool = False
    _objects: dict[Name, Json] = field(default_factory=dict)
    _by_label: dict[tuple[str, str, str | None], set[Name]] = field(default_factory=dict)
    _expected: dict[Name, int] = field(default_factory=dict)
    _ghosts: set[Name] = field(default_factory=set)
    _doubts: dict[Name, Json] = field(default_factory=dict)
    _deleting: dict[Name, str] = field(default_factory=dict)

    def get(self, name: Name) -> Json | None:
        """The object, or None if the view does not have it."""
        return self._objects.get(name)

    def select(self, namespace: str, selector: str) -> list[Json]:
        """The objects of a namespace whose labels match a selector: `a=b,c in (d,e),f`."""
        terms = list(_terms(selector))
        indexed = next((term for term in terms if _indexed(term[0])), None)
        selected = self._named(namespace, *indexed) if indexed else set(self._objects)
        items = (self._objects[name] for name in sorted(selected) if name[0] == namespace)
        return [item for item in items if _matches(item["metadata"], terms)]

    def put(self, item: Mapping[str, Any]) -> Change | None:
        """Store an object; None if the view has this version or a newer one."""
        item = _stored(self.api_version, self.kind, item)
        name = name_of(item)
        old = self._objects.get(name)
        if old is not None and version(old) >= version(item):
            return None
        if old is not None:
            self._drop(name)
        self._doubts.pop(name, None)
        if self._deleting.get(name) == item["metadata"]["uid"]:
            item = _being_deleted(item)
        else:
            self._deleting.pop(name, None)
        self._objects[name] = item
        for label in _labels(item):
            self._by_label.setdefault((name[0], *label), set()).add(name)
        return old, item

    def remove(self, item: Mapping[str, Any]) -> Change | None:
        """Drop a deleted object; None if the view has no object, or a newer one of its name."""
        old = self._objects.get(name_of(item))
        if old is None or (
            old["metadata"]["uid"] != item["metadata"]["uid"] and version(old) >= version(item)
        ):
            return None
        self._drop(name_of(item))
        self._deleting.pop(name_of(item), None)
        if self.kind not in _OTHERS and "deletionTimestamp" not in old["metadata"]:
            self._doubts[name_of(item)] = old["metadata"]
        return old, None

    def replace(self, items: Iterable[Mapping[str, Any]], listed: str) -> list[Change]:
        """Bring the view to a list of all objects that has the version `listed`."""
        items = list(items)
        changes = [change for item in items if (change := self.put(item)) is not None]
        kept = {name_of(item) for item in items}
        missing = [
            item
            for name, item in self._objects.items()
            if name not in kept and version(item) <= number(listed)
        ]
        return changes + [change for item in missing if (change := self.remove(item))]

    def compare(self, listed: Iterable[Mapping[str, Any]]) -> list[str]:
        """Compare with a list of metadata.

        Returns:
            The objects whose state at the previous comparison has not arrived since.
        """
        versions = {
            (m.get("namespace", ""), m["name"]): number(m["resourceVersion"]) for m in listed
        }
        late = [
            n for n, least in self._expected.items() if n in versions and self._older(n, least)
        ]
        late += [name for name in self._ghosts if name in self._objects and name not in versions]
        self._expected = {n: least for n, least in versions.items() if self._older(n, least)}
        self._ghosts = self._objects.keys() - versions.keys()
        return ["/".join(name) for name in late]

    def _older(self, name: Name, least: int) -> bool:
        item = self._objects.get(name)
        return item is None or version(item) < least

    def mark_deleted(self, target: Mapping[str, Any], *, exists: bool) -> None:
        """Take in our own deletion of an object, which exists until its finalizers are done."""
        item = self._objects.get(name_of(target))
        if item is None or item["metadata"]["uid"] != target["metadata"]["uid"]:
            return
        # Events from before the deletion may still come.
        self._deleting[name_of(target)] = item["metadata"]["uid"]
        if exists:
            self._objects[name_of(target)] = _being_deleted(item)
        else:
            self._drop(name_of(target))

    def doubt(self, name: Name, meta: Json) -> None:
        """Let the next read of an object be live; `meta` has its labels if the view lacks it."""
        known = self._objects.get(name, {"metadata": meta})
        self._doubts[name] = known["metadata"]

    def in_doubt(self, name: Name) -> bool:
        """Whether the view may have a wrong state of an object."""
        return name in self._doubts

    def select_doubts(self, namespace: str, selector: str) -> list[Name]:
        """The objects in doubt that `select` has to return if they are as they were."""
        terms = list(_terms(selector))
        doubts = self._doubts.items()
        return [n for n, meta in doubts if n[0] == namespace and _matches(meta, terms)]

    def settle(self, name: Name, live: Json | None) -> Change | None:
        """Take in a live read of an object in doubt; one without our label stays in doubt.

        Returns:
            What it changes in the view.
        """
        if name not in self._doubts:
            return None  # a newer state has arrived
        if live is not None and _is_managed(live):
            change = self.put(live)
            self._doubts.pop(name, None)
            return change
        old = self._objects.get(name)
        self.forget(name)
        if live is None:
            del self._doubts[name]
        else:
            self._doubts[name] = live["metadata"]
        return None if old is None else (old, None)

    def forget_doubts(self, resource: Name) -> None:
        """Drop the doubts about the children of a deleted resource."""
        for name in [n for n, meta in self._doubts.items() if owner_keys(meta) == [resource]]:
            del self._doubts[name]

    def forget(self, name: Name) -> None:
        """Drop an object that may not exist any more; the next read of it is live."""
        if name in self._objects:
            self._drop(name)

    def _named(self, namespace: str, key: str, values: tuple[str, ...]) -> set[Name]:
        """The objects with one of these values of a label, or with any value."""
        named = (self._by_label.get((namespace, key, v), set()) for v in values or (None,))
        return set[Name]().union(*named)

    def _drop(self, name: Name) -> None:
        for label in _labels(self._objects.pop(name)):
            entry = (name[0], *label)
            self._by_label[entry].discard(name)
            if not self._by_label[entry]:
                del self._by_label[entry]


def name_of(item: Mapping[str, Any]) -> Name:
    """The key of an object."""
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def version(item: Mapping[str, Any]) -> int:
    """The resource version of an object, as a number."""
    return number(item["metadata"]["resourceVersion"])


def number(text: str) -> int:
    """A resource version as a number: those of one kind grow."""
    return int(text)


def _stored(api_version: str, kind: str, item: Mapping[str, Any]) -> Json:
    """The object with its kind, which lists omit, and without the fields of its managers."""
    meta = dict(item["metadata"])
    # They take half of the memory. A write needs the names of the managers.
    entries = meta.pop("managedFields", ())
    managers = [{k: e[k] for k in ("manager", "operation") if k in e} for e in entries]
    return {
        "apiVersion": api_version,
        "kind": kind,
        **item,
        "metadata": {**meta, "managedFields": managers} if managers else meta,
    }


def _labels(item: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """The entries of an object in the index: each label with its value, and without."""
    for key, value in (item["metadata"].get("labels") or {}).items():
        if _indexed(key):
            yield key, value
            yield key, None


def _indexed(key: str) -> bool:
    return key in _INDEXED or key.startswith(_SHARER)


def matches(item: Mapping[str, Any], selector: str) -> bool:
    """Whether the labels of an object match a selector."""
    return _matches(item["metadata"], list(_terms(selector)))


def _matches(meta: Mapping[str, Any], terms: list[tuple[str, tuple[str, ...]]]) -> bool:
    labels = meta.get("labels") or {}
    return all(key in labels and (not values or labels[key] in values) for key, values in terms)


def _is_managed(item: Mapping[str, Any]) -> bool:
    return (item["metadata"].get("labels") or {}).get(names.MANAGED_BY) == names.MANAGER


def _being_deleted(item: Json) -> Json:
    """The object as in deletion, which the API server may not have shown yet."""
    meta = {"deletionTimestamp": "deleted by the operator", **item["metadata"]}
    return {**item, "metadata": meta}


def _terms(selector: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The keys of a label selector with the values that they may have; none for any value."""
    rest = selector
    while rest:
        key, opened, after = rest.partition(" in (")
        if opened and "," not in key:
            listed, _, rest = after.partition(")")
            rest = rest.removeprefix(",")
            yield key, tuple(listed.split(","))
            continue
        term, _, rest = rest.partition(",")
        key, equals, value = term.partition("=")
        yield key, ((value,) if equals else ())
