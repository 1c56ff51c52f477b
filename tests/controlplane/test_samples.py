"""The samples still equal Git after they are applied, reconciled and applied again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.operating import Lab, Object, until
from support.documents import definition, load, load_all

pytestmark = pytest.mark.controlplane

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "manifests" / "samples"


def in_git() -> dict[str, Object]:
    """Return the SpeculativeModels of all samples, by name."""
    files = sorted(SAMPLES.glob("*.yaml"))
    bodies = [body for file in files for body in load_all(file.read_text())]
    return {b["metadata"]["name"]: b for b in bodies if b["kind"] == "SpeculativeModel"}


def seen(lab: Lab) -> dict[str, Object]:
    """Return the live SpeculativeModels that have a status, by name."""
    return {b["metadata"]["name"]: b for b in lab.all("specm") if b.get("status")}


def differences(git: Any, live: Any, schema: Object, path: str) -> Iterator[str]:
    """Yield each difference of `live` from `git` with the scalar defaults of the schema."""
    if not isinstance(git, dict) or not isinstance(live, dict):
        if type(git) is not type(live) or isinstance(git, str | bool | int):
            if git != live:
                yield f"{path} is {live!r}, and {git!r} in Git"
        else:
            yield from items(git, live, schema, path)
        return
    for key, value in live.items():
        own = schema.get("properties", {}).get(key) or schema.get("additionalProperties", {})
        where = f"{path}.{key}"
        if key in git:
            yield from differences(git[key], value, own, where)
        elif isinstance(value, dict | list) or own.get("default") != value:
            yield f"{where} is {value!r}, and Git has nothing there"
    for key in git.keys() - live.keys():
        yield f"{path}.{key} is not there"


def items(git: list[Any], live: list[Any], schema: Object, path: str) -> Iterator[str]:
    if len(git) != len(live):
        yield f"{path} has {len(live)} items, and {len(git)} in Git"
        return
    for number, (a, b) in enumerate(zip(git, live, strict=True)):
        yield from differences(a, b, schema.get("items", {}), f"{path}[{number}]")


def test_difference_is_reported() -> None:
    schema = {"properties": {"a": {"default": 1}, "b": {"properties": {"c": {"default": {}}}}}}
    git = {"b": {"d": ["x"]}}
    assert list(differences(git, {"a": 1, "b": {"d": ["x"]}}, schema, "spec")) == []
    others: list[Object] = [
        {"a": 2, "b": {"d": ["x"]}},
        {"b": {"d": ["x"], "c": {}}},
        {"b": {"d": ["y"]}},
        {"b": {"d": ["x", "x"]}},
        {"b": {}},
        {"b": {"d": "x"}},
    ]
    for live in others:
        assert len(list(differences(git, live, schema, "spec"))) == 1, live


def test_live_samples_equal_git_with_scalar_defaults(
    lab: Lab,
) -> None:
    apply = ("apply", "-f", str(SAMPLES))
    lab.kubectl(*apply)
    git = in_git()
    assert len(git) >= 14
    until(lambda: seen(lab).keys() == git.keys(), lambda: f"a status of each: {seen(lab)}")

    output = lab.kubectl(*apply).splitlines()
    assert len(output) > len(git)
    assert [line for line in output if not line.endswith(" unchanged")] == []
    # Argo CD sends the same request for a server-side diff.
    by_server = ("--server-side", "--dry-run=server", "--force-conflicts", "-o", "yaml")
    text = lab.kubectl(*apply, *by_server, "--field-manager=argocd-controller")
    asked = {
        b["metadata"]["name"]: b for b in load(text)["items"] if b["kind"] == "SpeculativeModel"
    }
    schema = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    live = seen(lab)
    for name, body in git.items():
        actual = live[name]
        assert actual["metadata"]["generation"] == 1, name
        assert asked[name]["spec"] == actual["spec"], name
        own = schema["properties"]["spec"]
        assert list(differences(body["spec"], actual["spec"], own, name)) == []
