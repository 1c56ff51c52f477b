"""Thousands of requests at once: the server answers or refuses each one, and keeps running."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specdec.api.defaults import MAX_QUEUE_SIZE
from specdec.triton.repository import RepositoryPlan
from support.triton_client import ask, text
from support.triton_server import Server
from triton.conftest import Serve
from triton.flood import ANSWERED, encoded, flood

pytestmark = pytest.mark.nightly

BLS = "tensorrt_llm_bls"
# Triton's message, which errors of an ensemble contain too.
FULL = "Exceeds maximum queue size"
# The message of a Reference engine.
WAITING = "requests are waiting; retry later"
GOOD = {"text_input": "def f(", "max_tokens": 4, "exclude_input_in_output": True}
_TEXT = {"text_input": "def f(", "max_tokens": 1}
_TOKENS = {
    "input_ids": np.array([[5, 6, 7]], np.int32),
    "input_lengths": 3,
    "request_output_len": 1,
}
REQUESTS: dict[str, Mapping[str, Any]] = {
    BLS: _TEXT,
    "ensemble": _TEXT,
    "preprocessing": {"QUERY": "def f(", "REQUEST_OUTPUT_LEN": 1},
    "postprocessing": {
        "TOKENS_BATCH": np.array([[[5, 6, 7]]], np.int32),
        "SEQUENCE_LENGTH": np.array([[3]], np.int32),
    },
    "tensorrt_llm": _TOKENS,
    "tensorrt_llm_draft": _TOKENS,
}


@pytest.fixture(
    scope="module", params=[("0.19.0", True), ("0.18.0", False)], ids=["streaming", "unary"]
)
def flooded(
    request: pytest.FixtureRequest, serve: Serve, draft_target_plan: RepositoryPlan
) -> Iterator[Server]:
    """Yield a server per layout; upstream's BLS has no batcher, nor preprocessing of 0.18.0."""
    version, decoupled = request.param
    plan = replace(draft_target_plan, version=version, decoupled=decoupled)
    with serve(plan) as running:
        yield running


# The Python models get only twice the number of requests that corrupted the heap. Triton ends a
# server whose Python process gets no processor for a second; more requests make this likely.
@pytest.mark.parametrize(
    ("model", "count"),
    [(name, 10_000 if name == BLS else 2_000) for name in REQUESTS],
)
def test_a_flood_is_answered_or_refused(flooded: Server, model: str, count: int) -> None:
    desired = text(ask(flooded.url, BLS, **GOOD))
    ends = flood(flooded.url, encoded(model, REQUESTS[model]), count)
    assert ends.total() == count
    answered = ends.pop(ANSWERED)
    assert all(FULL in message or WAITING in message for message in ends), ends
    if model == BLS:
        assert MAX_QUEUE_SIZE <= answered < count, "what is over the limit is refused"
    assert text(ask(flooded.url, BLS, **GOOD)) == desired


def test_a_full_queue_refuses_while_the_answers_go_on(
    serve: Serve, draft_target_plan: RepositoryPlan
) -> None:
    """The answers occupy all slots of the BLS for longer than the refusals take."""
    queue, slots = 8, 4
    plan = replace(
        draft_target_plan,
        max_batch_size=2,
        bls_max_in_flight=slots,
        max_queue_size=queue,
        target=replace(draft_target_plan.target, step_latency_ms=30.0),
    )
    with serve(plan) as server:
        request = encoded(BLS, {**_TEXT, "max_tokens": 60, "num_draft_tokens": 0, "end_id": -1})
        order: list[str] = []
        ends = flood(server.url, request, 200, ended=order.append)
        assert set(ends) == {ANSWERED, *(end for end in ends if FULL in end)}
        assert queue <= ends[ANSWERED] < 100
        # Refusals come before the first answer: they do not wait for other requests.
        first = order.index(ANSWERED)
        assert Counter(order[:first]).total() >= 200 - ends[ANSWERED] - queue
