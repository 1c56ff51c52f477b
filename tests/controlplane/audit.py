"""The permissions of an account, and the requests that the audit log shows."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from typing_extensions import override

Object = dict[str, Any]

# The message of admission that checks owner references: it checks a right without a request.
UNOWNED = "you can't set finalizers on"
# For an applied object that does not exist, the API server also checks `create`. Its refusal
# stays an allowed patch in the audit log. The message of a quota differs.
_LACKING = re.compile(r'cannot (?P<verb>\w+) resource "')


class Right(NamedTuple):
    """One verb on one resource of one group; a subresource stands after a slash."""

    verb: str
    group: str
    resource: str

    @override
    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{self.group and '.'}{self.group}"


class Log:
    """The requests of the account since this was created; `plane` was started with `audited`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start = path.stat().st_size
        self._end = self._start
        self._used: set[Right] = set()
        self._refused: list[str] = []

    def used(self) -> set[Right]:
        """The rights that took part in what was answered so far."""
        self._read()
        return set(self._used)

    def refused(self) -> list[str]:
        """One line for each request that no role allows."""
        self._read()
        return list(self._refused)

    def _read(self) -> None:
        for event in self._events():
            target = event.get("objectRef")
            if target is None:
                continue  # a path that is no resource, such as the list of groups
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
                # Server-side apply of a new object: the server checks both.
                self._used.add(right._replace(verb="create"))

    def _events(self) -> Iterator[Object]:
        """Whole lines since the last read."""
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
    """The field managers that have set a field of the object's spec."""
    return {
        entry["manager"]
        for entry in body["metadata"]["managedFields"]
        if "f:spec" in entry["fieldsV1"] and entry.get("subresource") != "status"
    }


def granted(roles: list[Object]) -> set[Right]:
    """Every single right of the rules of these Roles and ClusterRoles."""
    rules = [rule for role in roles for rule in role["rules"]]
    return {
        Right(verb, group, resource)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def without(role: Object, right: Right) -> Object:
    """The role with one right taken out of it, and nothing else."""
    rules = []
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                verbs = [v for v in rule["verbs"] if Right(v, group, resource) != right]
                remaining = {"apiGroups": [group], "resources": [resource], "verbs": verbs}
                rules += [remaining] if verbs else []
    return {**role, "rules": rules}
