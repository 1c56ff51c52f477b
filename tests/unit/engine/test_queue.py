"""The queue: rows and calls that arrive together start together, and its length is bounded."""

import numpy as np
import pytest

from specdec.images.backend.tensorrtllm.reference_engine.errors import RequestError
from specdec.images.backend.tensorrtllm.reference_engine.llama import Llama
from specdec.images.backend.tensorrtllm.reference_engine.request import Request
from support.reference_engines import Call, Gate, ask, ask_all
from unit.engine.conftest import Start

PROMPT = [5, 9, 14, 3, 77, 20, 31, 8, 60]


def test_rows_of_a_call_share_their_first_step(gated: tuple[Llama, Gate], start: Start) -> None:
    model, gate = gated
    gate.open()
    scheduler = start(model, kv_reuse=False)
    for _ in range(20):
        rows = ask_all(scheduler, [PROMPT, PROMPT[:4], PROMPT[:2]], 2)
        assert [len(row.tokens()) for row in rows] == [2, 2, 2]
    assert gate.sizes == [[9, 4, 2], [1, 1, 1]] * 20


def test_calls_that_came_together_share_their_first_step(
    gated: tuple[Llama, Gate], start: Start
) -> None:
    model, gate = gated
    gate.open()
    scheduler = start(model, kv_reuse=False)
    calls = [[Call(scheduler, Request(np.array(PROMPT[:n], np.int64), 1))] for n in (3, 5, 7)]
    refusals = scheduler.submit([[row.ticket for row in call] for call in calls])
    assert refusals == [None] * 3
    assert [len(row.tokens()) for call in calls for row in call] == [1, 1, 1]
    assert gate.sizes == [[3, 5, 7]]


def test_the_queue_is_bounded(gated: tuple[Llama, Gate], start: Start) -> None:
    model, gate = gated
    scheduler = start(model, max_queue=2)
    calls = [ask(scheduler, PROMPT, 1)]
    gate.await_step()
    calls += [ask(scheduler, PROMPT, 1) for _ in range(2)]
    with pytest.raises(RequestError, match="2 requests are waiting; retry later"):
        ask(scheduler, PROMPT, 1)
    gate.open()
    assert all(call.tokens() for call in calls)


def test_a_call_is_taken_whole_or_not_at_all(gated: tuple[Llama, Gate], start: Start) -> None:
    model, gate = gated
    scheduler = start(model, max_queue=2)
    calls = [ask(scheduler, PROMPT, 1)]
    gate.await_step()
    calls.append(ask(scheduler, PROMPT, 1))
    rows = [Call(scheduler, Request(np.array(PROMPT, np.int64), 1)) for _ in range(3)]
    tickets = [row.ticket for row in rows]
    # The refused call takes no place in the queue from the call that came with it.
    refusals = scheduler.submit([tickets[:2], tickets[2:]])
    assert "1 requests are waiting; retry later" in str(refusals[0])
    assert refusals[1] is None
    gate.open()
    assert all(call.tokens() for call in [*calls, rows[2]])
    assert not rows[0].updates + rows[1].updates
