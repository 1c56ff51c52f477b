"""The server refuses prompts of megabytes and long lists, and answers other requests."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from cluster.processes import DEADLINE_SECONDS, until
from specdec.triton.repository import RepositoryPlan
from support.processor_time import processor_seconds
from support.server_memory import memory_of
from support.triton_client import RefusedError, ask, text
from support.triton_server import Server
from triton.conftest import Serve

BLS = "tensorrt_llm_bls"
ENSEMBLE = "ensemble"
MEGABYTE = 1_000_000
# The least limit in bytes: 512 tokens of the pair have less, with at most 37 bytes each.
LIMIT = 64 * 1024
# Processor time, which a busy machine does not change. Refusing all prompts takes about 0.4 s of
# it; tokenizing 10 MB took 7 s and more.
REFUSAL_SECONDS = 3.0


@pytest.fixture(scope="module")
def attacked(serve: Serve, draft_target_plan: RepositoryPlan) -> Iterator[Server]:
    with serve(draft_target_plan) as server:
        yield server


def prompt(size: int) -> NDArray[np.object_]:
    """Return a prompt of `size` bytes."""
    line = b"def value(x):\n    return x + 1\n"
    return np.array([[(line * (size // len(line) + 1))[:size]]], object)


def refusal(server: Server, model: str, **values: object) -> str:
    """Send a request that the server must refuse, and return the error message."""
    with pytest.raises(RefusedError) as refused:
        ask(server.url, model, **{"max_tokens": 1, **values})
    return str(refused.value)


class GoodClient:
    """A client that sends short prompts one after another and counts the answers."""

    def __init__(self, server: Server, model: str) -> None:
        self._server, self._model = server, model
        self._stop = threading.Event()
        self.answers = 0

    def run(self) -> None:
        """Send requests until `stop` is called."""
        while not self._stop.is_set():
            answer = ask(self._server.url, self._model, text_input="def f():\n", max_tokens=2)
            assert text(answer)
            self.answers += 1

    def stop(self) -> None:
        """Send no further request after the one in flight."""
        self._stop.set()


@contextmanager
def good_client(server: Server, model: str) -> Iterator[None]:
    """Run a client; wait for its answers before and after the body."""
    client = GoodClient(server, model)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(client.run)
        try:
            more_answers(client)
            yield
            more_answers(client)
        finally:
            client.stop()
            running.result(DEADLINE_SECONDS)


def used_seconds(server: Server) -> float:
    """Return the processor time that the server and its models' processes have used."""
    return sum(map(processor_seconds, server.processes()))


def more_answers(client: GoodClient) -> None:
    known = client.answers
    until(lambda: client.answers > known + 3, lambda: "no answers")


@pytest.mark.parametrize("model", [BLS, ENSEMBLE])
def test_large_prompts_are_refused_while_short_ones_are_answered(
    attacked: Server, model: str
) -> None:
    sizes = [MEGABYTE, 10 * MEGABYTE, 50 * MEGABYTE]
    prompts = [prompt(size) for size in sizes]
    before = used_seconds(attacked)
    with good_client(attacked, model), ThreadPoolExecutor(len(sizes)) as pool:
        attacks = [pool.submit(refusal, attacked, model, text_input=large) for large in prompts]
        sentences = [attack.result(DEADLINE_SECONDS) for attack in attacks]
    for size, sentence in zip(sizes, sentences, strict=True):
        assert f"text_input has {size} bytes, more than the limit of {LIMIT} " in sentence
        assert "send a shorter prompt" in sentence
    assert used_seconds(attacked) < before + REFUSAL_SECONDS


@pytest.mark.parametrize("model", [BLS, ENSEMBLE])
def test_long_lists_are_refused_while_others_are_answered(attacked: Server, model: str) -> None:
    """Searching every token for 100 000 items once delayed other requests by a minute."""
    many = [f"word {number}" for number in range(100_000)]
    lists = {"stop_words": many, "bad_words": many, "embedding_bias_words": many}
    before = used_seconds(attacked)
    with good_client(attacked, model):
        for name, items in lists.items():
            more = {"embedding_bias_weights": [1.0] * len(many)} if "bias" in name else {}
            sentence = refusal(attacked, model, text_input="a", **{name: items}, **more)
            assert f"{name} has 100000 items, more than the limit of 1024 in a request" in sentence
    assert used_seconds(attacked) < before + REFUSAL_SECONDS
    # The server accepts the maximum number of items.
    text(ask(attacked.url, model, text_input="a", max_tokens=50, stop_words=many[:1024]))


@pytest.mark.parametrize("model", [BLS, ENSEMBLE])
def test_memory_of_refused_prompts_is_given_back(attacked: Server, model: str) -> None:
    """Each thread of the server may keep one buffer for its next request, but no more.

    Once every thread has a buffer, six more prompts add less memory than the size of one prompt.
    """
    size = 50 * MEGABYTE
    large = prompt(size)

    def left_by_six() -> int:
        before = memory_of(attacked).memory
        for _ in range(6):
            refusal(attacked, model, text_input=large)
        return memory_of(attacked).memory - before

    until(
        lambda: left_by_six() < size,
        lambda: f"{memory_of(attacked).memory} bytes are held, and more after each prompt",
    )


def test_short_prompts_are_answered_while_long_ones_are_encoded(
    serve: Serve, draft_target_plan: RepositoryPlan
) -> None:
    """Without a known sequence length, the limit is a megabyte, and encoding it takes long."""
    plan = replace(draft_target_plan, max_seq_len=None)
    with (
        serve(plan) as server,
        ThreadPoolExecutor(4) as pool,
    ):
        ask(server.url, BLS, text_input="def f():\n", max_tokens=2)
        large = prompt(MEGABYTE)
        pending = [pool.submit(refusal, server, BLS, text_input=large) for _ in range(4)]
        answer = ask(server.url, BLS, text_input="def f():\n", max_tokens=2)
        assert text(answer)
        assert not all(future.done() for future in pending)
        # The prompts are too long for the engine, which shows only after their tokenization.
        assert all("tensorrt_llm: " in future.result(DEADLINE_SECONDS) for future in pending)
