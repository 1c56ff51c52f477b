"""The Triton model of vLLM on a tritonserver: streams, limits, refusals, and a dead engine."""

import os
import signal
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from cluster.processes import until
from specdec.images.serving import alive
from specdec.triton.model_names import VLLM
from support.triton_client import Arrays, RefusedError, ask, stream, text
from support.triton_server import Server
from support.vllm_tests import installed
from support.vllm_triton import DRAFTS, PROMPT, engines, inputs, repository, serving

# Server, model and engine: 2 GiB.
pytestmark = [pytest.mark.slow, pytest.mark.triton, pytest.mark.vllm(gibibytes=2)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a server of the pair, whose engine the last test kills."""
    folder = tmp_path_factory.mktemp("server")
    with serving(installed(), repository(DRAFTS), folder) as running:
        yield running


def test_stream_has_the_text_of_the_whole_answer(server: Server) -> None:
    whole = ask(server.url, VLLM, **inputs(exclude_input_in_output=True))
    parts = ask(server.url, VLLM, **inputs(stream=True, return_finish_reason=True))
    assert len(whole) == 1
    assert len(parts) > 4
    assert text(parts) == text(whole)
    assert parts[0]["finish_reason"][0] == b"None"
    # A limit is no stop (server#7796).
    assert parts[-1]["finish_reason"][0] == b"length"
    assert text(ask(server.url, VLLM, **inputs())) == PROMPT + text(whole)


def test_answer_ends_at_a_stop_text_and_keeps_its_counts(server: Server) -> None:
    whole = text(ask(server.url, VLLM, **inputs(exclude_input_in_output=True)))
    stop = whole[20:24]
    asked = inputs(
        sampling={"stop": [stop]}, exclude_input_in_output=True, return_finish_reason=True
    )
    (part,) = ask(server.url, VLLM, **asked)
    assert text([part]) == whole[: whole.index(stop)]
    assert part["finish_reason"][0] == b"stop"
    histogram = part["acceptance_histogram"]
    assert part["total_draft_tokens"][0] == 4 * histogram.sum() > 0
    assert part["total_accepted_draft_tokens"][0] == histogram @ np.arange(5)


def test_clients_together_get_the_same_answers_and_counts(server: Server) -> None:
    (alone,) = ask(server.url, VLLM, **inputs())
    answers: list[Arrays] = []

    def client() -> None:
        answers.extend(ask(server.url, VLLM, **inputs()))

    threads = [threading.Thread(target=client) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 16
    for name in ("text_output", "acceptance_histogram"):
        assert {str(answer[name]) for answer in answers} == {str(alone[name])}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (inputs(sampling={"beams": 2}), "unknown sampling parameter beams: remove it; known are"),
        (inputs(sampling={"max_tokens": "x"}), "Expected `int | null`.*max_tokens"),
        (inputs(sampling={"temperature": -1}), "sampling_parameters is refused.*temperature"),
        (inputs(sampling={"temperature": 1}), "55005.: set temperature to 0"),
        (inputs(text_input=PROMPT * 99), "room for a prompt of .*: send a shorter prompt"),
        (inputs(stop=True), "the request has no id"),
    ],
)
def test_bad_requests_are_refused_in_a_sentence(
    server: Server, asked: Arrays, message: str
) -> None:
    with pytest.raises(RefusedError, match=message):
        ask(server.url, VLLM, **asked)


def test_cancelled_request_ends_in_the_engine(server: Server) -> None:
    long = inputs(200, sampling={"ignore_eos": True}, stream=True)
    with stream(server.url, VLLM, **long) as parts:
        next(iter(parts))
        parts.cancel()
    until(
        lambda: server.metric("vllm:num_requests_running") == 0,
        lambda: "the request still runs",
    )


def test_killed_engine_fails_its_requests_and_ends_the_model(server: Server) -> None:
    long = inputs(240, sampling={"ignore_eos": True}, stream=True)
    (engine,) = engines(server)
    with stream(server.url, VLLM, **long) as parts:
        replies = iter(parts)
        next(replies)
        os.kill(engine, signal.SIGKILL)
        with pytest.raises(RefusedError, match="its process ended during the call; try again"):
            list(replies)
    # The readiness probe fails at its first run.
    until(lambda: any(alive.dead(server.http_port)), lambda: "the model's process still runs")
