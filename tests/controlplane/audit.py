"""The permissions that roles grant, and those that requests in an audit log use."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from typing_extensions import override

Object = dict[str, Any]

# The admission plugin for owner references refuses with this message. It checks a permission for
# which the audit log has no request.
UNOWNED = "you can't set finalizers on"
# When an applied object does not exist, the API server also checks `create`. The audit log shows
# a refused `create` as an allowed patch with this message. A quota refuses with another message.
_LACKING = re.compile(r'cannot (?P<verb>\w+) resource "')


class Right(NamedTuple):
    """A permission: a verb on a resource of an API group, such as `get` on `pods/log`."""

    verb: str
    group: str
    resource: str

    @override
    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{self.group and '.'}{self.group}"


class Log:
    """Reads the requests that the API server has added to an audit log since this was created."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start = path.stat().st_size
        self._end = self._start
        self._used: set[Right] = set()
        self._refused: list[str] = []

    def used(self) -> set[Right]:
        """Return the permissions that the allowed requests have used so far."""
        self._read()
        return set(self._used)

    def refused(self) -> list[str]:
        """Return a line for each request that lacked a permission."""
        self._read()
        return list(self._refused)

    def _read(self) -> None:
        for event in self._events():
            target = event.get("objectRef")
            if target is None:
                continue  # a path without a resource, such as the list of API groups
            right = _right(event["verb"], target)
            status = event.get("responseStatus", {})
            notes = event.get("annotations", {})
            allowed = notes.get("authorization.k8s.io/decision") == "allow"
            message = status.get("message", "")
            lacking = _LACKING.search(message)
            if not allowed or lacking or UNOWNED in message:
                verb = lacking["verb"] if lacking else right.verb
                self._refused.append(f"{right._replace(verb=verb)}: {message}")
                continue
            self._used.add(right)
            if right.verb == "patch" and status.get("code") == 201:
                # Server-side apply created the object: the server checked both verbs.
                self._used.add(right._replace(verb="create"))

    def _events(self) -> Iterator[Object]:
        """Yield the events in the complete lines since the last read."""
        with self._path.open("rb") as file:
            file.seek(self._end)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._end += len(line)
                yield json.loads(line)


def _right(verb: str, target: Object) -> Right:
    resource, below = target["resource"], target.get("subresource")
    return Right(verb, target.get("apiGroup", ""), f"{resource}/{below}" if below else resource)


def writers(body: Object) -> set[str]:
    """Return the field managers that have set a field of the object's spec."""
    return {
        entry["manager"]
        for entry in body["metadata"]["managedFields"]
        if "f:spec" in entry["fieldsV1"] and entry.get("subresource") != "status"
    }


def granted(roles: list[Object]) -> set[Right]:
    """Return every permission that the rules of these Roles and ClusterRoles grant."""
    rules = [rule for role in roles for rule in role["rules"]]
    return {
        Right(verb, group, resource)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def without(role: Object, right: Right) -> Object:
    """Return the role without one of its permissions."""
    rules = []
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                verbs = [v for v in rule["verbs"] if Right(v, group, resource) != right]
                remaining = {"apiGroups": [group], "resources": [resource], "verbs": verbs}
                rules += [remaining] if verbs else []
    return {**role, "rules": rules}
