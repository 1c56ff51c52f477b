"""`specdec status` of a recorded resource: tree, table, JSON object and errors."""

import copy
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from specdec.api.conditions import PROBLEMS
from specdec.tools.cli.app import app
from support.fake_api import Api, pod
from unit.inspect.recorded import BODY, JOBS, KEY, MEASURED, PODS, RESOURCE, STATUS, record

pytestmark = pytest.mark.usefixtures("login")


@pytest.fixture(autouse=True)
def recorded(api: Api) -> None:
    record(api)


def status(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["status", *arguments])


def status_json(*arguments: str) -> Any:
    result = status("pair", "--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def with_status(api: Api, **changes: Any) -> None:
    body = copy.deepcopy(BODY)
    body["status"] |= changes
    api.objects[RESOURCE] = body
    api.objects[RESOURCE.rpartition("/")[0]] = [body]


def lines(result: Result) -> list[str]:
    """Return the output's lines without the branches of the tree."""
    assert result.exit_code == 0, result.output
    return [re.sub(r"^[│├└─ ]+", "", line).rstrip() for line in result.stdout.splitlines()]


def test_tree_shows_stages_jobs_engines_and_measurements() -> None:
    shown = lines(status("pair"))
    text = "\n".join(shown)
    assert shown[0] == "lab/pair  Building  DraftTarget on TensorRT, 1 of 1 pods ready"
    parts = ("stages", "jobs", "engines", "image", "plan", "speculation", "benchmark", "pods")
    assert [line for line in shown if line in parts] == list(parts)
    assert "address" in shown
    assert re.search(r"^compared +5 templates, 31 flags$", text, re.MULTILINE)
    assert re.search(r"^request fields +min_tokens, seed$", text, re.MULTILINE)
    assert re.search(r"^differs +the image differs from TensorRT-LLM 0.19.0$", text, re.MULTILINE)
    stage = next(line.split() for line in shown if line.startswith("EnginesReady"))
    assert stage[1:3] == ["False", "Building"]
    assert re.fullmatch(r"\d+d", stage[3])
    job = next(line for line in shown if line.startswith("engine "))
    # The progress comes from the log, which is newer than the status with 10 %.
    assert re.search(r"engine-3f3f-1 +Running +build 42 % 1 failed", job)
    engine = next(line for line in shown if line.startswith("target "))
    assert engine.split()[:5] == ["target", "Building", "42", "%", KEY[:16]]
    assert re.search(r"^draft +Built +4e4e4e4e4e4e4e4e +31 s$", text, re.MULTILINE)
    assert "20730 of 23034 MiB (90 %): target weights 15316, target cache 3000" in text
    assert "24576 tokens" in text
    assert "61 % (312 of 512 draft tokens)" in text
    assert "3.42" in text
    assert "8 at once" in text
    assert "speed 1.80x (1.65x to 1.92x)" in text
    assert re.search(r"^pair-0 +server +Ready +0 ", text, re.MULTILINE)


def test_two_servers_have_an_address_each(api: Api) -> None:
    both = [
        {"role": role, "url": f"http://{host}:8000", "grpc": f"{host}:8001"}
        for role, host in (("target", "pair.lab.svc"), ("draft", "pair-draft.lab.svc"))
    ]
    with_status(api, endpoints=both)
    text = "\n".join(lines(status("pair")))
    pattern = r"^draft +http://pair-draft.lab.svc:8000 +pair-draft.lab.svc:8001$"
    assert re.search(pattern, text, re.MULTILINE)
    assert status_json()["endpoints"] == both


def test_measurements_of_another_revision_are_stale(api: Api) -> None:
    assert "the desired revision has no result yet" in status("pair").stdout
    assert re.search(r"Completed.*, stale", status("pair").stdout)
    with_status(api, speculation=MEASURED, benchmark={**STATUS["benchmark"], "stale": False})
    fresh = status("pair").stdout
    assert "revision" not in fresh
    assert "stale" not in fresh
    assert "61 %" in fresh


def test_sources_of_drafts_have_a_row_each(api: Api) -> None:
    source = {"name": "lookup", "draftedTokens": 40, "acceptedTokens": 30, "acceptancePercent": 75}
    with_status(api, speculation={**MEASURED, "sources": [source]})
    pattern = r"acceptance of lookup +75 % \(30 of 40 draft tokens\)"
    assert re.search(pattern, status("pair").stdout)


def test_json_has_the_status_and_the_live_children() -> None:
    resource = status_json()
    assert resource["format"] == "specdec.dev/status/v1"
    assert resource["method"] == "DraftTarget"
    for key, value in STATUS.items():
        if key != "selector":
            assert resource[key] == value, key
    running, done = resource["jobs"]
    assert (running["name"], running["state"]) == ("engine-3f3f-1", "Running")
    assert (running["phase"], running["percent"], running["failures"]) == ("build", 42, 1)
    assert (done["state"], done["completedAt"]) == ("Complete", "2026-01-02T03:00:30Z")
    assert [(pod["name"], pod["ready"]) for pod in resource["pods"]] == [
        ("pair-0", True),
        ("engine-3f3f-1-x", True),
    ]
    assert resource["notes"] == []


def test_without_a_name_there_is_a_line_per_resource(api: Api) -> None:
    head, line = status().stdout.splitlines()
    assert not head.endswith(" "), "a pipe gets no padding"
    cells = dict(zip(re.split(r"  +", head), re.split(r"  +", line.rstrip()), strict=True))
    assert cells["NAME"] == "pair"
    assert (cells["READY"], cells["REASON"]) == ("1/1", "Building")
    assert cells["PROGRESS"] == "target 10 %"
    assert (cells["ACCEPT"], cells["SPEED"]) == ("-", "-")
    with_status(api, speculation=MEASURED)
    assert "61%" in status().stdout
    [row] = status("--json").stdout.splitlines()
    assert json.loads(row)["speculation"] == MEASURED


def test_resource_without_a_status_is_shown(api: Api) -> None:
    body = copy.deepcopy(BODY)
    del body["status"]
    api.objects[RESOURCE] = body
    api.objects[RESOURCE.rpartition("/")[0]] = [body]
    assert "not yet reconciled by the operator" in status("pair").stdout
    assert "not reconciled" in status().stdout


def test_change_that_is_not_reconciled_is_shown(api: Api) -> None:
    with_status(api, observedGeneration=1)
    assert "has not yet reconciled the latest change" in status("pair").stdout


def test_unknown_name_lists_the_known_ones(api: Api) -> None:
    result = status("pear")
    assert result.exit_code == 2
    assert result.stderr == (
        "specdec: there is no SpeculativeModel pear in namespace lab: it has pair\n"
    )


@pytest.mark.parametrize(
    ("path", "message", "kept"),
    [
        (JOBS, 'cannot list resource "jobs"', "pair-0"),
        (PODS, 'cannot list resource "pods"', "pair-fetch-1"),
        (f"{PODS}/engine-3f3f-1-x/log", 'cannot get resource "pods/log"', "engine-3f3f-1"),
    ],
)
def test_forbidden_reads_are_noted_and_the_rest_is_shown(
    api: Api, path: str, message: str, kept: str
) -> None:
    api.errors[path] = (403, f'User "me" {message}')
    result = status("pair")
    assert result.exit_code == 1
    assert message in result.stderr
    assert "lab/pair" in result.stdout
    assert kept in result.stdout
    as_json = status("pair", "--json")
    assert as_json.exit_code == 1
    assert any(message in note for note in json.loads(as_json.stdout)["notes"])


def test_unreachable_api_server_exits_with_3(api: Api) -> None:
    api.errors[PODS] = (503, "shutting down")
    result = status("pair")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "shutting down" in result.stderr


def test_pod_that_cannot_run_shows_why(api: Api) -> None:
    stuck = pod("pair-0", "server", "Pending")
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    stuck["status"]["conditions"] = [{**unschedulable, "message": "0/3 nodes have a GPU."}]
    crashing = pod("pair-1", "server", restarts=3)
    crashing["status"]["conditions"] = []
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 5m"}
    crashing["status"]["containerStatuses"] = [{"restartCount": 7, "state": {"waiting": waiting}}]
    beside = pod("pair-2", "server")
    beside["status"]["initContainerStatuses"] = crashing["status"]["containerStatuses"]
    live = [stuck, crashing, beside]
    api.objects[PODS] = lambda selector: live if "model" in selector else []
    pods = {item["name"]: item for item in status_json()["pods"]}
    assert pods["pair-2"]["trouble"] == pods["pair-1"]["trouble"]
    assert "0/3 nodes have a GPU" in pods["pair-0"]["trouble"]
    assert pods["pair-1"]["trouble"] == "CrashLoopBackOff: back-off 5m"
    assert (pods["pair-1"]["restarts"], pods["pair-1"]["ready"]) == (7, False)


def test_control_characters_of_a_resource_are_escaped(api: Api) -> None:
    with_status(api, phase="\x1b[2J[bold]x", url="http://[red]\x07")
    shown = status("pair").stdout
    assert "\\x1b[2J[bold]x" in shown
    assert "http://[red]\\x07" in shown


def on_80_columns(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> list[str]:
    """Return the lines of `specdec status` in a terminal of 80 columns."""
    console = Console(width=80, file=io.StringIO())
    monkeypatch.setattr("specdec.tools.terminal.screen", lambda: console)
    result = status(*arguments)
    assert result.exit_code == 0, result.output
    assert isinstance(console.file, io.StringIO)
    shown = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert max(map(len, shown)) <= 80
    return [re.sub(r"^[│├└─ ]+", "", line) for line in shown]


def test_at_80_columns_names_are_whole_and_messages_have_the_width(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "code-assistant-server-7c9f8d6b5d-x2x4z"
    waiting = pod(name, "server")
    message = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    waiting["status"] = {"phase": "Pending", "conditions": [{**condition, "message": message}]}
    api.objects[PODS] = [waiting]
    shown = on_80_columns(monkeypatch, "pair")
    at = shown.index(name)
    assert re.fullmatch(r"server  Pending  0 restarts  \d+d  \S+", shown[at + 1])
    problem = " ".join(shown[at + 2 : at + 5])
    assert "0/3 nodes are available: 3 Insufficient nvidia.com/gpu" in problem
    assert len(shown[at + 2]) > 50


def test_at_80_columns_messages_of_conditions_have_the_width(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    conditions = copy.deepcopy(STATUS["conditions"])
    conditions[0]["message"] = message = "claim models is bound, " * 4 + "and that is all"
    with_status(api, conditions=conditions)
    shown = on_80_columns(monkeypatch, "pair")
    at = next(i for i, line in enumerate(shown) if line.startswith(conditions[0]["type"]))
    assert " ".join(line.strip() for line in shown[at + 1 : at + 3]) == message


def test_at_80_columns_the_table_of_all_becomes_a_list(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = copy.deepcopy(BODY)
    body["metadata"]["name"] = name = "code-assistant-of-the-whole-company-1"
    api.objects[RESOURCE.rpartition("/")[0]] = [body]
    first, second = on_80_columns(monkeypatch)
    assert first == f"lab/{name}  Building"
    assert second.startswith("DraftTarget  1/1 ready  target 10 %  accept -  speed -  ")


def test_problems_are_red_and_progress_is_yellow() -> None:
    from specdec.tools.inspect.overview import color

    assert {color({"status": "False", "reason": reason}) for reason in PROBLEMS} == {"red"}
    assert color({"status": "False", "reason": "Building"}) == "yellow"
    assert color({"status": "True", "reason": "FitsWithWarnings"}) == "green"


def test_status_writes_nothing(api: Api, login: Path) -> None:
    before = login.read_bytes()
    assert status("pair").exit_code == 0
    assert login.read_bytes() == before
    assert {path.split("/")[-1] for path, _ in api.seen} == {"pair", "jobs", "pods", "log"}
