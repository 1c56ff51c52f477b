"""The readers of audit logs and role rules; tests/chart covers the log of a real server."""

import json
from pathlib import Path
from typing import Any

from controlplane.audit import UNOWNED, Log, Object, Right, granted, without

GET = Right("get", "apps", "deployments")
ROLE: Object = {
    "kind": "Role",
    "rules": [
        {"apiGroups": ["apps", ""], "resources": ["deployments"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    ],
}


def line(verb: str, code: int = 200, message: str = "", **target: Any) -> str:
    decision = "forbid" if "no role" in message else "allow"
    event = {
        "verb": verb,
        "objectRef": {"apiVersion": "v1", **target},
        "responseStatus": {"code": code, "message": message},
        "annotations": {"authorization.k8s.io/decision": decision},
    }
    return json.dumps(event) + "\n"


def test_log_reads_new_lines_of_the_audit_file(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    file.write_text(line("delete", resource="jobs"))
    log = Log(file)
    assert log.used() == set(), "what was asked before"
    path = json.dumps({"verb": "get", "requestURI": "/apis"}) + "\n"
    whole = line("get", resource="pods", subresource="log", code=502) + path
    half = line("get", resource="deployments", apiGroup="apps", code=404)
    with file.open("a") as writer:
        writer.write(whole + half[:40])
        writer.flush()
        assert log.used() == {Right("get", "", "pods/log")}
        writer.write(half[40:])
    assert log.used() == {Right("get", "", "pods/log"), GET}


def test_apply_that_creates_uses_patch_and_create(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    file.touch()
    log = Log(file)
    file.write_text(line("patch", resource="jobs", apiGroup="batch", code=201))
    assert log.used() == {Right("patch", "batch", "jobs"), Right("create", "batch", "jobs")}


def test_refused_request_uses_no_right(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    file.touch()
    log = Log(file)
    message = f"forbidden: {UNOWNED}: , <nil>"
    file.write_text(
        line("list", resource="secrets", code=403, message="no role")
        + line("patch", resource="services", code=403, message=message)
        + line("patch", resource="services", code=403, message="exceeded quota: none")
    )
    assert log.refused() == ["list secrets: no role", f"patch services: {message}"]
    assert log.used() == {Right("patch", "", "services")}, "a quota refuses after the role"


def test_apply_without_the_create_right_counts_as_refused(tmp_path: Path) -> None:
    """A real server sent this message, and its log shows the patch as allowed."""
    file = tmp_path / "audit.log"
    file.touch()
    log = Log(file)
    message = (
        'jobs.batch "a" is forbidden: User "b" cannot create resource "jobs" in API group "batch"'
    )
    file.write_text(line("patch", resource="jobs", apiGroup="batch", code=403, message=message))
    assert log.refused() == [f"create jobs.batch: {message}"]
    assert log.used() == set()


def test_without_removes_one_right_of_a_role() -> None:
    rights = granted([ROLE])
    assert len(rights) == 5
    assert GET in rights
    for right in rights:
        assert granted([without(ROLE, right)]) == rights - {right}
