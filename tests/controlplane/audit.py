"""What an account may ask of the API server, and by the server's audit log really asks."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from typing_extensions import override

Object = dict[str, Any]

# The words of admission that checks owner references: it asks for a right in place of a request.
UNOWNED = "you can't set finalizers on"
# The API server asks for `create` once it has found that what is applied is not there: a patch
# that the audit log has as allowed, and that was refused all the same. A quota says it otherwise.
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
    """What the account has asked since this was made; `plane` was started with `audited`."""

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
            words = status.get("message", "")
            lacking = _LACKING.search(words)
            if not allowed or lacking or UNOWNED in words:
                verb = lacking["verb"] if lacking else right.verb
                self._refused.append(f"{right._replace(verb=verb)}: {words}")
                continue
            self._used.add(right)
            if right.verb == "patch" and status.get("code") == 201:
                # Server-side apply of what is not there: the server asks for both.
                self._used.add(right._replace(verb="create"))

    def _events(self) -> Iterator[Object]:
        """Whole lines since the last look."""
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
    """Whoever has set a field of an object's spec, by the name they gave themselves."""
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
                one = {"apiGroups": [group], "resources": [resource], "verbs": verbs}
                rules += [one] if verbs else []
    return {**role, "rules": rules}
