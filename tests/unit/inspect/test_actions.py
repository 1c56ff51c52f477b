"""`specdec suspend`, `resume` and `rerun` patch one field of the current resource."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result
from typing_extensions import override

from specdec.tools.cli.app import app
from support.fake_api import MODELS, Api

pytestmark = pytest.mark.usefixtures("login")
PAIR = f"{MODELS}/namespaces/lab/speculativemodels/pair"
Json = dict[str, Any]


class Patched(Api):
    """Records patches; the first `conflicts` patches fail, as if the status had changed."""

    def __init__(self) -> None:
        super().__init__()
        self.patches: list[list[Json]] = []
        self.conflicts = 0

    @override
    def write(self, method: str, address: str, body: Any) -> tuple[int, bytes]:
        assert (method, address.partition("?")[0]) == ("PATCH", PAIR)
        assert "fieldManager=specdec-cli" in address
        self.patches.append(body)
        if len(self.patches) <= self.conflicts:
            return 409, json.dumps({"kind": "Status", "message": "was modified"}).encode()
        return 200, json.dumps(self.objects[PAIR]).encode()


@pytest.fixture
def api() -> Patched:
    return Patched()


def given(api: Api, **spec: Any) -> None:
    api.objects[PAIR] = {
        "apiVersion": "specdec.dev/v1alpha1",
        "kind": "SpeculativeModel",
        "metadata": {"name": "pair", "namespace": "lab", "resourceVersion": "7"},
        "spec": spec,
    }


def specdec(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


GUARD = {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"}


@pytest.mark.parametrize(
    ("arguments", "spec", "path", "value"),
    [
        (["suspend"], {}, "/spec/suspend", True),
        (["suspend"], {"suspend": False}, "/spec/suspend", True),
        (["resume"], {"suspend": True}, "/spec/suspend", False),
        (["rerun"], {}, "/spec/verification", {"run": "1"}),
        (["rerun"], {"verification": {"mode": "Gate"}}, "/spec/verification/run", "1"),
        (["rerun"], {"verification": {"run": "9"}}, "/spec/verification/run", "10"),
        (["rerun"], {"verification": {"run": "May"}}, "/spec/verification/run", "1"),
        (
            ["rerun", "--benchmark"],
            {"benchmark": {"mode": "OnReady", "run": "2"}},
            "/spec/benchmark/run",
            "3",
        ),
    ],
)
def test_one_field_is_patched(
    arguments: list[str], spec: Json, path: str, value: Any, api: Patched
) -> None:
    given(api, **spec)
    result = specdec(*arguments, "pair")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("lab/pair ")
    assert api.patches == [[GUARD, {"op": "add", "path": path, "value": value}]]


@pytest.mark.parametrize(
    ("command", "spec", "answer"),
    [
        ("suspend", {"suspend": True}, "lab/pair is suspended already\n"),
        ("resume", {}, "lab/pair is not suspended\n"),
    ],
)
def test_nothing_is_written_if_nothing_changes(
    command: str, spec: Json, answer: str, api: Patched
) -> None:
    given(api, **spec)
    assert specdec(command, "pair").stdout == answer
    assert api.patches == []


@pytest.mark.parametrize("section", ["verification", "benchmark"])
def test_disabled_measurement_is_one_sentence(section: str, api: Patched) -> None:
    given(api, **{section: {"mode": "Disabled"}})
    arguments = ["--benchmark"] if section == "benchmark" else []
    result = specdec("rerun", "pair", *arguments)
    assert result.exit_code == 2
    assert f"spec.{section}.mode of pair is Disabled; set it to " in result.stderr
    assert api.patches == []


def test_change_of_the_status_meanwhile_is_no_error(api: Patched) -> None:
    given(api)
    api.conflicts = 3
    assert specdec("suspend", "pair").exit_code == 0
    assert len(api.patches) == 4


def test_resource_that_always_changes_is_one_sentence(api: Patched) -> None:
    given(api)
    api.conflicts = 100
    result = specdec("suspend", "pair")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "was modified" in result.stderr


@pytest.mark.parametrize("command", ["suspend", "resume", "rerun"])
def test_unknown_resource_is_one_sentence(command: str, api: Patched) -> None:
    api.objects[PAIR.rpartition("/")[0]] = []
    result = specdec(command, "pair")
    assert result.exit_code == 2
    assert "no SpeculativeModel pair in namespace lab: it has none" in result.stderr
    assert specdec(command, "a/b").exit_code == 2
