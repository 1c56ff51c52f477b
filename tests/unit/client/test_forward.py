"""`--url specm/NAME`: commands reach a resource's service through `kubectl port-forward`."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster.processes import until
from specdec.api.networking import OpenAI
from specdec.client.errors import BadRequestError, UnreachableError
from specdec.tools.cli import forward
from specdec.tools.cli.app import app
from specdec.tools.cli.forward import forwarded, read_resource
from specdec.tools.cli.options import Protocol
from specdec.triton.launch import PORTS

DEFAULTS = {"namespace": None, "kube_context": None, "protocol": Protocol.GRPC}
# The fake kubectl prints more than a pipe holds, as kubectl does for many connections.
SCRIPT = """#!{python}
import json, os, sys, time
with open({log!r}, "a") as log:
    log.write(json.dumps([os.getpid(), *sys.argv[1:]]) + "\\n")
{body}
"""
FORWARDS = """
print("Forwarding from 127.0.0.1:41234 -> 8001", flush=True)
print("Handling connection for 41234\\n" * 10_000, flush=True)
open({done!r}, "w").close()
time.sleep(600)
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return the file in which the fake kubectl records its process ID and its arguments."""
    return tmp_path / "log"


def kubectl(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Create a fake kubectl and make it the only program on PATH."""
    file = folder / "bin" / "kubectl"
    file.parent.mkdir()
    log = str(folder / "log")
    file.write_text(SCRIPT.format(python=sys.executable, log=log, body=body), "utf-8")
    file.chmod(0o755)
    monkeypatch.setenv("PATH", str(file.parent))


def calls(log: Path) -> list[list[str]]:
    """Return the arguments of each call."""
    return [json.loads(line)[1:] for line in log.read_text("utf-8").splitlines()]


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("option", "address", "port", "local"),
    [
        ("url", "specm/pair", "8001", "localhost:41234"),
        ("url", "specm/pair:8000", "8000", "localhost:41234"),
        ("url", "specm/pair/v1", "9000", "http://localhost:41234/v1"),
        ("url", "specm/pair:9001/v1", "9001", "http://localhost:41234/v1"),
        ("metrics", "specm/pair", "8002", "localhost:41234"),
    ],
)
def test_port_is_forwarded_until_the_command_ends(
    option: str,
    address: str,
    port: str,
    local: str,
    tmp_path: Path,
    log: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = tmp_path / "done"
    kubectl(tmp_path, monkeypatch, FORWARDS.format(done=str(done)))
    with forwarded({**DEFAULTS, option: address, "other": None}, option, "other") as params:
        assert (params[option], params["other"]) == (local, None)
        until(done.exists, lambda: "the lines of kubectl are not read")
        process = json.loads(log.read_text("utf-8"))[0]
        assert alive(process)
    assert not alive(process)
    assert calls(log) == [["port-forward", "service/pair", f":{port}"]]


def test_http_namespace_and_context_reach_kubectl(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl(tmp_path, monkeypatch, FORWARDS.format(done=str(tmp_path / "done")))
    given = {"namespace": "lab", "kube_context": "staging", "protocol": Protocol.HTTP}
    with forwarded({**given, "url": "specm/a", "baseline_url": "specm/b"}, "url", "baseline_url"):
        pass
    place = ["port-forward", "--namespace=lab", "--context=staging"]
    assert calls(log) == [[*place, "service/a", ":8000"], [*place, "service/b", ":8000"]]


def test_other_addresses_need_no_kubectl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    given = {**DEFAULTS, "url": "http://specm:9000/v1", "draft_url": None}
    with forwarded(given, "url", "draft_url") as params:
        assert params == given


@pytest.mark.parametrize(
    "address", ["specm/", "specm/a/b", "specm/A", "specm/a:", "specm/-a", "specm/a;b", "specm/a b"]
)
def test_malformed_address_is_one_sentence(address: str) -> None:
    with (
        pytest.raises(BadRequestError, match=r"--baseline-url is .*; write "),
        forwarded({**DEFAULTS, "baseline_url": address}, "baseline_url"),
    ):
        pass


NOT_FOUND = 'Error from server (NotFound): services "pair" not found'


@pytest.mark.parametrize(
    ("listed", "status", "sentence"),
    [
        ("'a\\nb'", 2, "there is no SpeculativeModel pair in namespace lab: it has a, b"),
        ("''", 2, "there is no SpeculativeModel pair in namespace lab: it has none"),
        ("'pair'", 3, "SpeculativeModel pair has no Service yet: specdec status pair shows its"),
        ("sys.exit('no')", 3, "there is no Service pair in namespace lab: check name and"),
    ],
)
def test_unknown_resource_of_an_address_is_a_sentence(
    listed: str, status: int, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = f"print({listed}) if 'get' in sys.argv else sys.exit({NOT_FOUND!r})"
    kubectl(tmp_path, monkeypatch, body)
    result = CliRunner().invoke(
        app, ["generate", *["--url", "specm/pair", "-n", "lab", "--prompt", "x"]]
    )
    assert result.exit_code == status
    assert result.stderr.startswith(f"specdec: {sentence}")
    assert "Error from server" not in result.stderr


def test_other_error_of_kubectl_is_repeated_without_its_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = "Error from server (Forbidden): pods is forbidden"
    kubectl(tmp_path, monkeypatch, f"sys.exit({refusal!r})")
    result = CliRunner().invoke(app, ["generate", "--url", "specm/pair", "--prompt", "x"])
    assert result.exit_code == UnreachableError.exit_status
    assert result.stderr == (
        "specdec: kubectl cannot forward port 8001 of service pair: pods is forbidden\n"
    )


def test_missing_kubectl_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    result = CliRunner().invoke(app, ["verify", "--url", "specm/pair"])
    assert result.exit_code == BadRequestError.exit_status
    assert result.stderr.startswith("specdec: there is no kubectl on PATH to reach specm/pair;")


def test_kubectl_that_ignores_the_signal_is_killed(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    kubectl(tmp_path, monkeypatch, stubborn + FORWARDS.format(done=str(tmp_path / "done")))
    monkeypatch.setattr("specdec.tools.cli.forward._STOP_SECONDS", 0.1)
    with forwarded({**DEFAULTS, "url": "specm/pair"}, "url"):
        process = json.loads(log.read_text("utf-8"))[0]
    assert not alive(process)
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN


def test_resource_of_an_address_is_read(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl(tmp_path, monkeypatch, "print(json.dumps({'kind': 'SpeculativeModel'}))")
    place = {**DEFAULTS, "namespace": "lab", "kube_context": "here"}
    assert read_resource(place, "specm/pair:8000") == {"kind": "SpeculativeModel"}
    arguments = ["get", "--namespace=lab", "--context=here", "specm", "pair", "-o", "json"]
    assert calls(log) == [arguments]
    assert read_resource(place, "localhost:8000") is None


def test_resource_that_cannot_be_read_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl(tmp_path, monkeypatch, "sys.exit('forbidden')")
    assert read_resource(DEFAULTS, "specm/pair") is None


def test_forwarded_ports_are_those_of_the_server() -> None:
    assert {"http": forward._HTTP, "grpc": forward._GRPC, "metrics": forward._METRICS} == PORTS
    assert OpenAI().port == forward._OPENAI
