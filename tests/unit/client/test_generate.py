"""The gRPC client against a scripted server: chunks, counts, errors and timeouts."""

import json
import threading
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from cluster.processes import DEADLINE_SECONDS, until
from specdec.client import (
    BadRequestError,
    Client,
    Counts,
    RefusedError,
    Request,
    UnreachableError,
)
from specdec.client.answer import Answer
from specdec.tools.cli.app import app
from specdec.tools.cli.generate import summary
from unit.client.fake_server import INPUTS, Script, serve


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def url(script: Script) -> Iterator[str]:
    server, address = serve(script)
    yield address
    server.stop(grace=None).wait(DEADLINE_SECONDS)


def test_chunks_are_concatenated_and_the_last_counts_apply(script: Script, url: str) -> None:
    script.chunks, script.counts = ("def ", "", "f()"), ((4, 1), (8, 3), (12, 7))
    with Client(url) as client:
        answer = client.ask(Request("class A:", draft_tokens=4))
    assert answer.text == "def f()"
    assert answer.chunks == 2
    assert answer.counts == Counts(12, 7)
    assert 0 < answer.first_chunk_seconds <= answer.seconds


def test_chunks_are_yielded_in_order(script: Script, url: str) -> None:
    with Client(url) as client:
        assert [chunk.text for chunk in client.generate(Request("x"))] == ["a", "b"]


def test_request_uses_the_input_names_of_the_server(script: Script, url: str) -> None:
    request = Request("x", max_tokens=7, draft_tokens=0, seed=5, stop_words=("\n\n", "def"))
    with Client(url) as client:
        client.ask(request)
    names = {tensor.name for tensor in script.seen[0].inputs}
    assert names == set(INPUTS)


def test_tensors_have_the_wire_types() -> None:
    tensors = Request("x", draft_tokens=3, seed=2**63).tensors(INPUTS)
    assert tensors["num_draft_tokens"].dtype == "INT32"
    assert tensors["random_seed"].dtype == "UINT64"
    renamed = {name for name in INPUTS if name != "random_seed"} | {"seed"}
    newer = Request("x", draft_tokens=3, seed=2**63).tensors(renamed)
    assert newer["seed"].plain == 2**63
    assert "random_seed" not in newer
    assert tensors["exclude_input_in_output"].plain is True
    assert {tensor.shape for tensor in tensors.values()} == {(1, 1)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": ""}, "prompt is empty"),
        ({"max_tokens": 0}, "max tokens is 0"),
        ({"draft_tokens": -1}, "draft tokens is -1"),
    ],
)
def test_invalid_request_is_reported_with_its_resolution(
    change: dict[str, str | int], message: str
) -> None:
    with pytest.raises(BadRequestError, match=message):
        Request(**{"prompt": "x", **change})  # type: ignore[arg-type]


def test_input_the_model_lacks_is_named(url: str) -> None:
    with Client(url) as client, pytest.raises(BadRequestError, match="no input temperature"):
        client.ask(Request("x", temperature=0.5))


def test_refusal_quotes_the_server(script: Script, url: str) -> None:
    script.error = "num_draft_tokens is 99, at most 8"
    with Client(url) as client, pytest.raises(RefusedError, match="99, at most 8"):
        client.ask(Request("x"))
    with Client(url) as client, pytest.raises(RefusedError, match="unknown model"):
        client.ask(Request("x", model="absent"))


def test_streaming_from_a_unary_model_is_refused_before_sending(script: Script, url: str) -> None:
    script.decoupled = False
    with Client(url) as client:
        with pytest.raises(BadRequestError, match="does not stream"):
            client.ask(Request("x"))
        assert script.seen == []
        assert client.ask(Request("x", stream=False)).text == "ab"


def test_request_without_a_response_ends_at_the_deadline(script: Script, url: str) -> None:
    script.silent = True
    with Client(url, timeout=0.3) as client, pytest.raises(UnreachableError, match=r"0\.3 s"):
        client.ask(Request("x"))


def test_failed_connection_is_reported() -> None:
    with (
        Client("127.0.0.1:9") as client,
        pytest.raises(UnreachableError, match=r"connection to .* failed"),
    ):
        client.ask(Request("x"))


@pytest.mark.parametrize("url", ["localhost", "http://localhost:8001", "localhost:grpc", ":8001"])
def test_invalid_addresses_are_refused(url: str) -> None:
    with pytest.raises(BadRequestError, match="host:port"):
        Client(url)


def test_command_prints_text_to_stdout_and_the_summary_to_stderr(script: Script, url: str) -> None:
    script.counts = ((4, 1), (8, 3))
    result = CliRunner().invoke(app, ["generate", "--url", url, "--prompt", "x"])
    assert result.exit_code == 0
    assert result.stdout == "ab\n"
    assert "8 tokens drafted, 3 accepted (38 %)" in result.stderr


def test_command_prints_json_lines(script: Script, url: str) -> None:
    result = CliRunner().invoke(app, ["generate", "--url", url, "--prompt", "x", "--json"])
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["text"] for line in lines] == ["a", "b", "ab"]
    assert lines[-1]["done"] is True


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--prompt", "x", "--model", "absent"], 1),
        (
            [
                "--prompt",
                "",
            ],
            2,
        ),
        ([], 2),
        (["--prompt", "x", "--prompt-file", "-"], 2),
        (["--prompt-file", "/no/such/file"], 2),
        (["--prompt", "x", "--url", "127.0.0.1:9"], 3),
    ],
)
def test_exit_status_depends_on_the_kind_of_error(
    url: str, arguments: list[str], status: int
) -> None:
    result = CliRunner().invoke(app, ["generate", "--url", url, *arguments])
    assert result.exit_code == status
    assert result.stderr.startswith("specdec: ")
    assert "Traceback" not in result.output


def test_client_that_cancels_a_stream_leaves_no_thread_behind() -> None:
    script = Script(silent=True)
    script.hold.clear()
    server, url = serve(script)
    before = set(threading.enumerate())
    try:
        with Client(url, timeout=0.2) as client:
            for _ in range(3):
                with pytest.raises(UnreachableError, match="no complete answer"):
                    client.ask(Request("x"))
        until(lambda: _added(before) == set(), lambda: f"{_added(before)} still run")
    finally:
        script.hold.set()
        server.stop(None)


def _added(before: set[threading.Thread]) -> set[threading.Thread]:
    """Return new threads, without those of the fake server."""
    return {
        thread
        for thread in threading.enumerate()
        if thread not in before and "ThreadPoolExecutor" not in thread.name
    }


def test_summary_has_both_numbers_if_drafting_is_off() -> None:
    """The second command of docs/start-cpu.md prints them too."""
    line = summary(Answer(chunks=1, seconds=0.5, counts=Counts(0, 0)))
    assert line == "1 chunks in 0.50 s; 0 tokens drafted, 0 accepted: no draft tokens were used"
