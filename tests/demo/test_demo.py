"""The parts of the demo, with fake programs on PATH in place of a cluster."""

import html
import json
import os
import re
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from rich.console import Console

from demo import machine, tools, vllm
from demo.errors import DemoError
from demo.kubectl import Kubectl, wait
from demo.progress import Progress, is_measured, is_ready, is_verified, why_not
from demo.screen import Screen
from demo.story import ask_openai, follow
from specdec.api.conditions import OPTIONAL, Type
from specdec.client import Answer
from specdec.servers.totals import SpeculationTotals
from support import vllm_node, vllm_wheel
from support.vllm_wheel import VllmError

Program = Callable[[str, str], Path]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Return a function that writes a Python program into the first folder on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def write(name: str, body: str) -> Path:
        file = tmp_path / name
        head = f"#!{sys.executable}\nimport json, sys, time\n"
        file.write_text(head + textwrap.dedent(body))
        file.chmod(0o755)
        return file

    return write


def model(generation: int, observed: int, *conditions: tuple[str, str, str]) -> dict[str, Any]:
    return {
        "metadata": {"generation": generation},
        "status": {
            "observedGeneration": observed,
            "conditions": [
                {"type": t, "status": s, "reason": r, "message": f"about {t}"}
                for t, s, r in conditions
            ],
        },
    }


def test_each_change_is_shown_once_without_waiting_conditions() -> None:
    progress = Progress()
    first = model(1, 1, ("Accepted", "True", "Valid"), ("StorageReady", "Unknown", "Waiting"))
    second = model(1, 1, ("Accepted", "True", "Valid"), ("StorageReady", "False", "ClaimPending"))
    assert [s.type for s in progress.changes(first)] == ["Accepted"]
    assert progress.changes(first) == []
    assert [s.reason for s in progress.changes(second)] == ["ClaimPending"]


def test_conditions_of_an_older_spec_are_ignored() -> None:
    old = model(2, 1, ("Ready", "True", "Serving"))
    assert Progress().changes(old) == []
    assert not is_ready(old)
    assert is_ready(model(2, 2, ("Ready", "True", "Serving")))


def test_verification_is_shown_once_and_awaited() -> None:
    kinds = ("SpeculationActive", "OutputEquivalent", "SpeculationEffective")
    running = model(1, 1, *((kind, "Unknown", "Verifying") for kind in kinds))
    assert not is_verified(running)
    assert not is_verified(model(1, 1))
    progress = Progress()
    assert [step.type for step in progress.changes(running)] == ["SpeculationActive"]
    reasons = zip(kinds, ("DraftTokensObserved", "Equivalent", "Effective"), strict=True)
    over = model(1, 1, *((kind, "True", reason) for kind, reason in reasons))
    assert [step.type for step in progress.changes(over)] == list(kinds)
    assert is_verified(over)
    assert is_verified(model(1, 1, *((kind, "Unknown", "VerificationFailed") for kind in kinds)))


def test_follow_stops_when_the_resource_fails(program: Program) -> None:
    failed = model(1, 1, ("Compatible", "False", "TokenizerMismatch"))
    failed["status"]["phase"] = "Failed"
    kubectl = program(
        "kubectl", f"print(json.dumps({failed!r}, indent=4), flush=True); time.sleep(60)"
    )
    with pytest.raises(DemoError, match="will not be served: Compatible is TokenizerMismatch"):
        follow(Kubectl(str(kubectl)), Screen(Console(file=StringIO())), "x", seconds=30)


def test_why_not_names_the_first_condition_that_is_not_true() -> None:
    stuck = model(1, 1, ("Accepted", "True", "Valid"), ("EnginesReady", "False", "BuildFailed"))
    assert why_not(stuck) == "EnginesReady is BuildFailed: about EnginesReady"
    assert "operator" in why_not(None)


def test_watch_yields_whole_objects_and_reopens(program: Program, tmp_path: Path) -> None:
    # kubectl ends after two objects, as an API server may end a watch at any time.
    kubectl = program("kubectl", 'for n in (1, 2): print(json.dumps({"n": {"n": n}}, indent=4))')
    seen = []
    for document in Kubectl(str(kubectl)).watch("specm", "x", seconds=20):
        seen.append(document["n"]["n"])
        if len(seen) == 4:
            break
    assert seen == [1, 2, 1, 2]


def test_watch_ends_at_its_deadline(program: Program) -> None:
    kubectl = program("kubectl", "time.sleep(60)")
    assert list(Kubectl(str(kubectl)).watch("specm", "x", seconds=0.2)) == []


def test_watch_ends_when_its_event_is_set(program: Program) -> None:
    body = 'print(json.dumps({"n": 1}, indent=4), flush=True); time.sleep(60)'
    over, seen = threading.Event(), []
    for document in Kubectl(str(program("kubectl", body))).watch("specm", seconds=50, over=over):
        seen.append(document["n"])
        over.set()
    assert seen == [1]


def test_kubectl_failure_carries_its_message(program: Program) -> None:
    kubectl = Kubectl(str(program("kubectl", 'sys.exit("Error: no such resource")')))
    with pytest.raises(DemoError, match="get specm: Error: no such resource"):
        kubectl("get", "specm")


def test_forward_yields_local_ports(program: Program) -> None:
    body = """
        for local, remote in ((4001, 8001), (4002, 8002)):
            print(f"Forwarding from 127.0.0.1:{local} -> {remote}", flush=True)
            print(f"Forwarding from [::1]:{local} -> {remote}", flush=True)
        time.sleep(60)
    """
    with Kubectl(str(program("kubectl", body))).forward("service/x", 8001, 8002) as ports:
        assert ports == {8001: 4001, 8002: 4002}


@pytest.mark.parametrize("accepted", [5, 0])
def test_openai_answer_is_shown_with_its_draft_tokens(program: Program, accepted: int) -> None:
    counts = {"num_draft_tokens": 9, "num_accepted_draft_tokens": accepted}
    answer = json.dumps({"metrics": {"speculative_decoding": counts}}).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

    out = StringIO()
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request).start()
        body = f"""
            print("Forwarding from 127.0.0.1:{server.server_port} -> 9000", flush=True)
            time.sleep(60)
        """
        kubectl = Kubectl(str(program("kubectl", body)))
        fails = pytest.raises(DemoError, match="no accepted draft tokens")
        with nullcontext() if accepted else fails:
            ask_openai(kubectl, Screen(Console(file=out, width=400)))
    assert "curl -s http://localhost:" in out.getvalue()
    assert '"num_draft_tokens": 9' in out.getvalue()


def test_failed_forward_reports_the_reason(program: Program) -> None:
    kubectl = Kubectl(str(program("kubectl", 'sys.exit("error: service not found")')))
    with pytest.raises(DemoError, match="service not found"), kubectl.forward("service/x", 8001):
        pytest.fail("no port is forwarded")


def test_tool_output_is_shown_and_its_last_line_is_the_error(program: Program) -> None:
    lines: list[str] = []
    failing = program("builder", 'print("step 1"); sys.exit("no space left")')
    with pytest.raises(DemoError, match=r"^no space left$"):
        tools.run(lines.append, str(failing))
    assert lines[0] == "step 1"


def test_tool_that_hangs_is_stopped_at_its_deadline(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = 0.0

    def report(_: str) -> None:
        """Move the clock past the deadline at the first output, however long the start took."""
        nonlocal passed
        passed = 60.0

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed)
    monkeypatch.setattr(tools, "time", clock)
    hanging = program("builder", 'print("step 1", flush=True); time.sleep(60)')
    with pytest.raises(DemoError, match="did not end within 60 s; its last output: step 1"):
        tools.run(report, str(hanging), seconds=60)


def test_node_without_root_names_the_commands_that_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(DemoError, match="sudo make demo") as raised:
        machine.machine("node", print).up()
    assert raised.value.exit_status == 2


def test_error_names_the_first_missing_tool_of_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DemoError, match="needs docker on PATH") as raised:
        machine.machine("kind", print).up()
    assert raised.value.exit_status == 2


def test_kind_builds_and_loads_both_images(program: Program, tmp_path: Path) -> None:
    log = tmp_path / "log"
    record = f"open({str(log)!r}, 'a').write(json.dumps(sys.argv) + '\\n')"
    program("docker", record)
    program("kind", record)
    place = machine.machine("kind", lambda _: None)
    place.up()
    place.build()
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    commands = [" ".join([Path(call[0]).name, *call[1:]]) for call in calls]
    assert "kind create cluster --name specdec-demo --wait 120s" in commands
    assert [s.split()[3] for s in commands if s.startswith("docker build")] == [
        "operator",
        "reference",
    ]
    load = "kind load docker-image --name specdec-demo"
    assert " ".join((load, *machine.IMAGES.values())) in commands


def test_vllm_needs_the_local_node() -> None:
    with pytest.raises(DemoError, match="leave out CLUSTER=kind") as raised:
        vllm.run(machine.machine("kind", print), Screen(Console(file=StringIO())))
    assert raised.value.exit_status == 2


def test_vllm_reports_its_size_first_and_why_it_cannot_be_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def install(report: Callable[[str], None]) -> None:
        report("downloading 0.9 GB")
        raise VllmError("gcc is not on PATH")

    monkeypatch.setattr(machine.Node, "up", lambda _: None)
    monkeypatch.setattr(vllm_wheel, "install", install)
    out = StringIO()
    with pytest.raises(DemoError, match="gcc is not on PATH") as raised:
        vllm.run(machine.machine("node", print), Screen(Console(file=out)))
    assert raised.value.exit_status == 2
    assert "downloading 0.9 GB" in out.getvalue()


def test_resources_of_vllm_have_the_image_and_the_packages() -> None:
    for name in (vllm.PLAIN, vllm.DRAFT):
        file = Path(vllm.__file__).parent / f"{name}.yaml"
        spec = yaml.safe_load(file.read_text("utf-8"))["spec"]
        assert spec["runtime"]["image"] == vllm_node.IMAGE
        assert {key: spec["serving"][key] for key in vllm_node.serving()} == vllm_node.serving()


def test_benchmark_is_awaited_and_shown() -> None:
    running = model(1, 1, ("BenchmarkCompleted", "Unknown", "Running"))
    over = model(1, 1, ("BenchmarkCompleted", "True", "Completed"))
    assert [is_measured(body) for body in (model(1, 1), running, over)] == [False, False, True]
    level = {
        "baseline": {"tokensPerSecond": "282.0"},
        "speculative": {"tokensPerSecond": "421.0"},
        "acceptancePercent": 58,
        "speedupPercent": 149,
    }
    over["status"]["benchmark"] = {"state": "Completed", "levels": [level]}
    out = StringIO()
    vllm.compare(over, Screen(Console(file=out, width=100)))
    assert "421.0 tokens/s" in out.getvalue()
    assert "149 % of the target alone" in out.getvalue()
    over["status"]["benchmark"] = {"state": "Failed", "message": "the service is missing"}
    with pytest.raises(DemoError, match="failed: the service is missing"):
        vllm.compare(over, Screen(Console(file=out)))


def test_wait_that_times_out_raises_the_given_message() -> None:
    with pytest.raises(DemoError, match="never came"):
        wait(lambda: False, lambda: "it never came", seconds=0.1, step=0.01)


def test_summary_shows_counts_and_equality() -> None:
    out = StringIO()
    screen = Screen(Console(file=out, width=100))
    answer = Answer("ab", chunks=2, seconds=1.0)
    screen.summary(
        answer, SpeculationTotals(rounds=8, drafted=32, accepted=16, generated=24), True
    )
    text = out.getvalue()
    assert "16 (50 %)" in text
    assert "8 (3.00 tokens a round)" in text
    assert "yes, byte for byte" in text
    screen.chunk("x[0] = '[bold]'", 0)
    assert "x[0] = '[bold]'" in out.getvalue()


def written(svg: str) -> str:
    """Return the text in a picture."""
    return html.unescape(" ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg)))


def test_recording_starts_at_the_cut_and_fetches_nothing() -> None:
    screen = Screen(Console(file=StringIO(), width=60, record=True, highlight=False))
    screen.line("building")
    screen.cut()
    screen.line("[bold]serving[/] <now>")
    svg = screen.picture("make demo")
    shown = written(svg)
    assert "serving" in shown
    assert "<now>" in shown
    assert "building" not in shown
    assert "url(http" not in svg
    Screen(Console(file=StringIO())).cut()


def test_picture_of_the_readme_matches_the_demo() -> None:
    svg = (tools.ROOT / "docs" / "demo.svg").read_text(encoding="utf-8")
    assert "url(http" not in svg
    shown = written(svg).replace("\xa0", " ")
    held = {str(kind) for kind in Type if kind not in OPTIONAL} - {"BenchmarkCompleted"}
    assert {kind for kind in held if kind not in shown} == set()
    out = StringIO()
    did = SpeculationTotals(rounds=1, drafted=1, accepted=1, generated=1)
    Screen(Console(file=out, width=100)).summary(Answer("a", chunks=1, seconds=1.0), did, True)
    for row in out.getvalue().splitlines():
        assert row[:28].strip() in shown
