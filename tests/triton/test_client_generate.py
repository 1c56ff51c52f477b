"""`specdec generate` against real servers: both protocols, both input spellings, all outputs."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from specdec.client import Client, Connection, Request
from specdec.client.generate import Protocol
from specdec.tools.cli.app import app
from support.triton_server import Server

PROMPT = "def read_lines(path):\n"
NEW_TOKENS = 24


@pytest.fixture(params=["grpc", "http"])
def protocol(request: pytest.FixtureRequest) -> Protocol:
    chosen: Protocol = request.param
    return chosen


def connect(server: Server, protocol: Protocol) -> Client:
    port = server.grpc_port if protocol == "grpc" else server.http_port
    return Client(Connection(f"127.0.0.1:{port}"), protocol=protocol)


def request(**changes: Any) -> Request:
    return Request(PROMPT, **{"max_tokens": NEW_TOKENS, **changes})


@pytest.mark.parametrize("stream", [False, True])
def test_both_protocols_give_the_text_of_the_ensemble(
    server: Server, protocol: Protocol, stream: bool
) -> None:
    with connect(server, "grpc") as control:
        plain = control.ask(request(model="ensemble", stream=False))
    with connect(server, protocol) as client:
        answer = client.ask(request(stream=stream, draft_tokens=4))
        ensemble = client.ask(request(model="ensemble", stream=stream))
    assert answer.text == ensemble.text == plain.text != ""
    assert (answer.chunks > 1) == stream
    assert answer.counts is not None
    assert answer.counts.drafted > 0


def test_options_reach_the_model_under_either_spelling(
    server: Server, newer_server: Server, protocol: Protocol
) -> None:
    sampled = {"temperature": 1.5, "top_k": 20, "top_p": 0.9, "min_tokens": 3}
    for running in (server, newer_server):
        with connect(running, protocol) as client:
            texts = [client.ask(request(seed=seed, **sampled)).text for seed in (5, 5, 6, 7, 8)]
        assert texts[0] == texts[1]
        assert len(set(texts)) > 1


def test_stop_words_biases_and_penalties_change_the_answer(
    server: Server, protocol: Protocol
) -> None:
    with connect(server, protocol) as client:
        plain = client.ask(request()).text
        stop = plain[:6][-3:]
        stopped = client.ask(request(stop_words=(stop,))).text
        word = "return"
        biased = client.ask(request(bias_words=(word,), bias_weights=(50.0,))).text
        penal = client.ask(request(repetition_penalty=5.0, frequency_penalty=2.0)).text
        several = client.ask(request(bad_words=("    ", "\n"), stop_words=("zzzz", "yyyy"))).text
    assert len(stopped) < len(plain)
    assert plain.startswith(stopped)
    assert biased != plain
    assert penal != plain
    assert "\n" not in several


def test_log_probabilities_logits_and_counts_come_when_asked(newer_server: Server) -> None:
    with connect(newer_server, "grpc") as client:
        answer = client.ask(request(log_probs=True, token_counts=True, draft_tokens=0))
        silent = client.ask(request())
        logits = client.ask(
            request(model="ensemble", stream=False, context_logits=True, generation_logits=True)
        )
    assert (
        len(answer.log_probs)
        == int(answer.optional_outputs["num_output_tokens"].sum())
        == NEW_TOKENS
    )
    assert max(answer.log_probs) <= 0
    assert silent.optional_outputs == {}
    assert silent.log_probs == ()
    generated, context = (
        logits.optional_outputs["generation_logits"],
        logits.optional_outputs["context_logits"],
    )
    assert generated.shape[-2] == NEW_TOKENS
    assert generated.shape[-1] == context.shape[-1] > 1


def test_command_over_http_with_several_prompts(server: Server, prompts: list[str]) -> None:
    arguments = ["generate", "--protocol", "http", "--url", f"127.0.0.1:{server.http_port}"]
    given = [word for prompt in prompts[:5] for word in ("--prompt", prompt)]
    result = CliRunner().invoke(app, [*arguments, *given, "--max-tokens", "8", "--json"])
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["index"] for line in lines] == list(range(5))
    with connect(server, "grpc") as client:
        assert [line["text"] for line in lines] == [
            client.ask(Request(prompt, max_tokens=8)).text for prompt in prompts[:5]
        ]


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (["--model", "absent"], 1, "absent"),
        (["--draft-tokens", "99"], 1, "99"),
        (["--token-counts"], 2, "no input return_num_input_tokens"),
    ],
)
def test_refusals_are_one_sentence(
    server: Server, protocol: Protocol, arguments: list[str], status: int, expected: str
) -> None:
    port = server.grpc_port if protocol == "grpc" else server.http_port
    where = ["--protocol", protocol, "--url", f"127.0.0.1:{port}", "--prompt", PROMPT]
    result = CliRunner().invoke(app, ["generate", *where, *arguments])
    assert result.exit_code == status
    assert expected in result.stderr
    assert result.stderr.startswith("specdec: ")
    assert len(result.stderr.splitlines()) == 1
