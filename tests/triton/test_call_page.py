"""The calls of docs/call.md, as printed, on a real server."""

import json
import re
import subprocess
import sys
import urllib.request

import pytest

from cluster.processes import DEADLINE_SECONDS
from support.quickstarts import ROOT, typed
from support.triton_server import Server

PAGE = ROOT / "docs" / "call.md"
CALLS = [command for command in typed(PAGE) if command[0] == "curl"]
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def text(server: Server) -> str:
    """Return the target's answer without speculation; every call must return the same text."""
    return "".join(sent(server, command)[-1] for command in CALLS if "/ensemble/" in command[2])


def sent(server: Server, curl: list[str]) -> list[str]:
    """Send a curl command's request to the test's server, and return the texts of the answer."""
    program, flags, url, option, body = curl
    assert (program, option) == ("curl", "-d")
    assert flags in ("-s", "-sN")
    url = url.replace("localhost:8000", f"127.0.0.1:{server.http_port}")
    with urllib.request.urlopen(url, body.encode(), timeout=DEADLINE_SECONDS) as reply:
        lines = [line for line in reply.read().decode().splitlines() if line]
    return [json.loads(line.removeprefix("data: "))["text_output"] for line in lines]


@pytest.mark.parametrize("command", CALLS, ids=lambda command: command[2].partition("/v2/")[2])
def test_curl_gets_the_answer_of_the_target(server: Server, command: list[str], text: str) -> None:
    before = server.metric("specdec_accepted_tokens_total")
    pieces = sent(server, command)
    assert "".join(pieces) == text
    assert (len(pieces) > 1) == command[2].endswith("generate_stream")
    assert (server.metric("specdec_accepted_tokens_total") > before) == (
        "tensorrt_llm_bls" in command[2]
    )


@pytest.mark.parametrize("program", PROGRAMS, ids=["specdec", "tritonclient"])
def test_program_prints_the_answer_of_the_target(server: Server, program: str, text: str) -> None:
    code = program.replace("localhost:8001", server.url)
    argv = [sys.executable, "-c", code]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(text)


def test_page_has_both_clients() -> None:
    assert len(CALLS) == 3
    assert len(PROGRAMS) == 2
