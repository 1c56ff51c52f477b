"""The HTTP client against a scripted server, with headers and TLS of both protocols."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cluster.processes import DEADLINE_SECONDS
from specdec.client import (
    BadRequestError,
    Client,
    ClientError,
    Connection,
    RefusedError,
    Request,
    UnreachableError,
)
from specdec.client.connection import headers
from specdec.tools.cli.app import app
from unit.client import fake_server
from unit.client.fake_http import Script, served


def ask(url: str, request: Request, timeout: float = 10.0, **options: Any) -> str:
    with Client(Connection(url, timeout, **options), protocol="http") as client:
        return client.ask(request).text


def test_request_has_the_given_inputs_and_chunks_are_concatenated() -> None:
    script = Script()
    with served(script) as url:
        request = Request("x", model="a b", max_tokens=7, stop_words=("q", "r"), seed=3)
        assert ask(url, request) == "ab"
    (configured, _, _), (path, _, body) = script.seen
    assert configured == "/v2/models/a%20b/config"
    assert path == "/v2/models/a%20b/generate_stream"
    assert body == {
        "text_input": "x",
        "max_tokens": 7,
        "stream": True,
        "exclude_input_in_output": True,
        "stop_words": ["q", "r"],
        "seed": 3,
    }


@pytest.mark.parametrize(
    ("script", "kind", "message"),
    [
        (Script(events=({"error": "too long"},)), RefusedError, "too long"),
        (Script(events=({"error": "bad input"},), status=400), RefusedError, "bad input"),
        (Script(events=("no object",), status=500), RefusedError, "HTTP 500"),
        (Script(events=("no json",)), RefusedError, "response is not JSON"),
        (Script(events=(3,)), RefusedError, "response is no JSON object"),
        (Script(config={"input": []}), BadRequestError, "does not stream"),
    ],
)
def test_errors_are_reported(script: Script, kind: type[ClientError], message: str) -> None:
    with served(script) as url, pytest.raises(kind, match=message):
        ask(url, Request("x"))


def test_ensemble_streams_without_a_transaction_policy() -> None:
    config = {**Script().configuration(), "platform": "ensemble"}
    del config["model_transaction_policy"]
    with served(Script(config=config)) as url:
        assert ask(url, Request("x", model="ensemble")) == "ab"


def test_timeout_applies_to_the_complete_answer() -> None:
    slow = Script(events=({"text_output": "a"},) * 40, pause=0.05)
    with served(slow) as url, pytest.raises(UnreachableError, match=r"within 0\.3 s"):
        ask(url, Request("x"), timeout=0.3)


def test_failed_connection_is_reported() -> None:
    with pytest.raises(UnreachableError, match=r"connection to 127\.0\.0\.1:9 failed"):
        ask("127.0.0.1:9", Request("x"))


def test_headers_are_sent_with_every_request_and_never_shown() -> None:
    given = headers(["Authorization: Bearer secret", "x-tenant:  a:b "])
    assert given == {"authorization": "Bearer secret", "x-tenant": "a:b"}
    assert "secret" not in repr(Connection("a:1", headers=given))
    script = Script()
    with served(script) as url:
        ask(url, Request("x"), headers=given)
    assert [seen["authorization"] for _, seen, _ in script.seen] == ["Bearer secret"] * 2


@pytest.mark.parametrize("line", ["secret", "sec ret: x", ": secret", "a: secret\nb: c"])
def test_invalid_headers_are_not_quoted(line: str) -> None:
    with pytest.raises(BadRequestError, match="header 2 is no") as caught:
        headers(["a: b", line])
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("file", ["missing.pem", ""])
def test_invalid_certificates_are_refused(file: str, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nothing\n", "utf-8")
    path = str(tmp_path / file) if file else str(wrong)
    with pytest.raises(BadRequestError, match="PEM"):
        ask("127.0.0.1:9", Request("x"), tls=True, root_certificates=path)


def test_client_certificate_needs_its_key(tmp_path: Path) -> None:
    with pytest.raises(BadRequestError, match="needs its key"):
        Connection("a:1", tls=True, certificate_chain=str(tmp_path))


def test_tls_connection_to_a_port_without_tls_fails() -> None:
    with (
        served(Script()) as url,
        pytest.raises(UnreachableError, match=r"connection to .* failed"),
    ):
        ask(url, Request("x"), tls=True)


def test_prompts_are_answered_in_order_and_a_failure_affects_no_other() -> None:
    server, url = fake_server.serve(fake_server.Script())
    arguments = ["generate", "--url", url, "--prompt", "x", "--prompt", "y"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == ["ab", "ab"]
    assert CliRunner().invoke(app, [*arguments, "--prompt", ""]).exit_code == 2
    assert CliRunner().invoke(app, [*arguments, "--model", "absent"]).exit_code == 1
    server.stop(grace=None).wait(DEADLINE_SECONDS)
