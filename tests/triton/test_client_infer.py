"""`specdec infer` against a real engine."""

import asyncio
import json

import pytest
from tokenizers import Tokenizer
from typer.testing import CliRunner

from specdec.client import BadRequestError, Connection
from specdec.client.infer import Inference, Output, infer
from specdec.tools.cli.app import app
from support.shipped_pair import PAIR
from support.triton_client import ask, tokens
from support.triton_server import Server

PROMPT = "def read_lines(path):\n"
IDS = tuple(Tokenizer.from_file(str(PAIR / "target" / "tokenizer.json")).encode(PROMPT).ids)


def run(server: Server, cancel_after: float | None = None, **options: object) -> Output:
    inference = Inference(ids=IDS, **options)  # type: ignore[arg-type]
    return asyncio.run(infer(Connection(server.url), inference, cancel_after=cancel_after))


def control(server: Server, length: int) -> list[int]:
    [answer] = ask(
        server.url,
        "tensorrt_llm",
        input_ids=list(IDS),
        input_lengths=len(IDS),
        request_output_len=length,
    )
    return tokens(answer, skip=len(IDS))


def test_ids_are_the_engines_streaming_or_not(server: Server, older_server: Server) -> None:
    expected = control(server, 20)
    streamed = run(server, max_tokens=20, stream=True)
    assert (streamed.tokens, streamed.responses) == (expected, 20)
    for running in (server, older_server):
        whole = run(running, max_tokens=20)
        assert (whole.tokens, whole.responses) == (expected, 1)


def test_drafts_are_verified_in_one_round(server: Server) -> None:
    expected = control(server, 5)
    wrong = (expected[2] + 1) % 100
    output = run(server, max_tokens=5, draft=(*expected[:2], wrong, expected[3]))
    assert output.tokens == expected[:3]
    assert (output.drafted, output.accepted) == (4, 2)


def test_lookahead_sizes_change_the_drafts_and_not_the_tokens(lookahead_server: Server) -> None:
    whole = run(lookahead_server, max_tokens=40)
    smallest = run(lookahead_server, max_tokens=40, lookahead=(1, 1, 0))
    assert smallest.tokens == whole.tokens
    assert (whole.drafted or 0) > 0
    assert (smallest.drafted or 0) < (whole.drafted or 0)


def test_lookahead_sizes_need_an_engine_that_takes_them(
    server: Server, older_server: Server, lookahead_server: Server
) -> None:
    for options, message in (
        ({"lookahead": (4, 3)}, "lookahead is 4,3; give three sizes"),
        ({"lookahead": (4, 3, -1)}, "lookahead is 4,3,-1; give three sizes"),
    ):
        with pytest.raises(BadRequestError, match=message):
            run(lookahead_server, **options)
    with pytest.raises(BadRequestError, match="takes no lookahead sizes"):
        run(older_server, lookahead=(1, 1, 0))


def test_a_cancelled_request_keeps_what_came(server: Server) -> None:
    output = run(server, cancel_after=0.05, max_tokens=400, stream=True)
    assert output.cancelled
    assert output.tokens == control(server, 400)[: len(output.tokens)]
    assert len(output.tokens) < 400
    assert not run(server, max_tokens=4).cancelled


def test_command_checks_text_with_a_tokenizer_of_its_own(server: Server) -> None:
    expected = control(server, 12)
    arguments = ["infer", "--url", server.url, "--max-tokens", "12", "--format", "json"]
    arguments += ["--tokens", json.dumps(IDS)]
    right = CliRunner().invoke(app, [*arguments, "--expect", json.dumps(expected)])
    assert (right.exit_code, json.loads(right.stdout)) == (0, expected)
    wrong = CliRunner().invoke(app, [*arguments, "--expect", json.dumps([0, *expected[1:]])])
    assert wrong.exit_code == 1
    assert "91.7 % of the positions are equal, the first difference at position 0" in wrong.stderr
