"""What a resource may do: the table under "What create grants" of docs/security.md is complete."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.documents import definition
from support.golden_cases import CASES, generated

ROOT = Path(__file__).parents[2]
SECURITY = (ROOT / "docs/security.md").read_text("utf-8")
# Fields that name objects of other users, or request resources that other users then lack.
GRANTING = re.compile(
    r"secret|configmap|claim|^image$|endpoint|^reference$|namespace|host(s|names)$|parentrefs"
    r"|class|nodeselector|tolerations|affinity|spread|address|resources$|^replicas$",
    re.IGNORECASE,
)
# An entry for such a field also covers the fields inside it.
WHOLES = {
    "metadata",
    "parentRefs",
    "resourceClaims",
    "extraVolumes",
    "affinity",
    "topologySpreadConstraints",
    "from",
    "resources",
    "sidecars",
    "tolerations",
}
Path_ = tuple[str, ...]


def fields(schema: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Yield every field of a schema with its path; items of a list have the list's path."""
    for name, body in schema.get("properties", {}).items():
        yield (*path, name), body
        yield from fields(body, (*path, name))
    if "items" in schema:
        yield from fields(schema["items"], path)


def spec_fields() -> dict[Path_, Any]:
    schema = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return dict(fields(schema["properties"]["spec"]))


def listed() -> list[Path_]:
    """Return the fields in the first column of the table under "What create grants"."""
    table = SECURITY.split("## What create grants")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    return [tuple(field.split(".")) for cell in cells for field in re.findall(r"`([\w.]+)`", cell)]


def within(short: Path_, path: Path_) -> bool:
    """Return whether a path contains these names in sequence."""
    return any(path[i : i + len(short)] == short for i in range(len(path)))


def covers(short: Path_, path: Path_) -> bool:
    """Return whether an entry of the table names a field, or a block of `WHOLES` around it."""
    return path[-len(short) :] == short or (short[-1] in WHOLES and within(short, path))


def free(body: Any) -> bool:
    """Return whether a field is an object, or a list of objects, without declared properties."""
    shape = body.get("items", body)
    return shape.get("type") == "object" and "properties" not in shape


def test_every_field_that_grants_something_is_listed() -> None:
    known = listed()
    granting = [
        path for path, body in spec_fields().items() if GRANTING.search(path[-1]) or free(body)
    ]
    assert len(granting) > 50
    missing = [path for path in granting if not any(covers(short, path) for short in known)]
    assert [".".join(path) for path in missing] == []


def test_every_listed_field_exists() -> None:
    paths = list(spec_fields())
    assert len(listed()) > 30
    for short in listed():
        assert any(within(short, path) for path in paths), ".".join(short)


def test_no_field_names_another_namespace() -> None:
    # These fields select or admit pods of other namespaces, and give no access to them.
    comparing = {"affinity", "networkPolicy"}
    paths = [path for path in spec_fields() if not comparing & {*path}]
    fields_ = {".".join(path) for path in paths if "namespace" in path[-1].lower()}
    assert fields_ == {"networking.gateway.parentRefs.namespace"}


def pod_specs(body: Any) -> Iterator[Any]:
    """Yield the pod specs inside an object, at any depth."""
    if isinstance(body, dict):
        if "containers" in body:
            yield body
        for value in body.values():
            yield from pod_specs(value)
    elif isinstance(body, list):
        for value in body:
            yield from pod_specs(value)


def golden_pods() -> Iterator[Any]:
    """Yield the pod specs of every golden case."""
    for case in CASES:
        for body in generated(case).objects:
            yield from pod_specs(body)


@pytest.mark.slow
def test_no_pod_has_a_token_and_servers_cannot_write_models() -> None:
    pods = list(golden_pods())
    servers = sidecars = copies = 0
    for pod in pods:
        assert pod["automountServiceAccountToken"] is False
        assert "serviceAccountName" not in pod
        for container in pod["containers"]:
            if container["name"] in ("server", "triton"):
                (models,) = [m for m in container["volumeMounts"] if m["name"] == "models"]
                assert models["readOnly"] is True
                servers += 1
        for container in pod.get("initContainers", ()):
            mounts = {mount["name"] for mount in container["volumeMounts"]}
            if container["name"] == "packages":
                assert mounts == {"tmp", "packages"}
                copies += 1
                continue
            assert all(name.startswith(("sidecar-", "extra-")) for name in mounts)
            sidecars += 1
    assert len(pods) > 50
    assert servers > 10
    assert sidecars
    assert copies


def test_what_the_crate_is_built_of_is_locked() -> None:
    lock = (ROOT / "operator/bls/Cargo.lock").read_text("utf-8")
    packages = [p for p in lock.split("[[package]]")[1:] if "source =" in p]
    assert all('checksum = "' in package for package in packages)
    dockerfile = (ROOT / "Dockerfile").read_text("utf-8")
    assert re.findall(r"cargo build.*", dockerfile) == ["cargo build --release --locked \\"]


def test_how_to_report_is_in_the_usual_place() -> None:
    text = (ROOT / "SECURITY.md").read_text("utf-8")
    assert "Report a vulnerability" in text
    # The page has no e-mail address, because reports by e-mail would not be read.
    assert "@" not in text
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (ROOT / link).exists(), link
    assert "(SECURITY.md)" in (ROOT / "README.md").read_text("utf-8")
    assert "`SECURITY.md`" in SECURITY
