"""In-flight batching: order, limits, cancellation, and isolation of failed requests."""

import threading
from typing import Any

import numpy as np
import pytest

from cluster.processes import DEADLINE_SECONDS
from specdec.images.backend.tensorrtllm.reference_engine import pace as pacing
from specdec.images.backend.tensorrtllm.reference_engine import sampling, sequence
from specdec.images.backend.tensorrtllm.reference_engine.config import Lookahead
from specdec.images.backend.tensorrtllm.reference_engine.errors import RequestError
from specdec.images.backend.tensorrtllm.reference_engine.llama import Llama
from specdec.images.backend.tensorrtllm.reference_engine.sampling import Sampling
from specdec.images.backend.tensorrtllm.reference_engine.scheduler import (
    CANCELLED,
    FAILED,
    UNLOADED,
)
from support.oracle import Tiny, logits
from support.reference_engines import Call, Gate, ask
from unit.engine.conftest import Engine, Start

PROMPT = [5, 9, 14, 3, 77, 20, 31, 8, 60]


def test_requests_join_and_leave_between_steps(gated: tuple[Llama, Gate], start: Start) -> None:
    model, gate = gated
    scheduler = start(model, kv_reuse=False)
    long = ask(scheduler, PROMPT, 6)
    gate.await_step()
    short = ask(scheduler, PROMPT[:4], 2)
    gate.step()
    gate.open()
    assert len(long.tokens()) == 6
    assert len(short.tokens()) == 2
    assert gate.sizes == [[9], [1, 4], [1, 1], [1], [1], [1]]


def test_cancel_frees_the_slot_at_the_next_step(gated: tuple[Llama, Gate], start: Start) -> None:
    model, gate = gated
    scheduler = start(model, kv_reuse=False)
    doomed, other = ask(scheduler, PROMPT, 200), None
    gate.await_step()
    other = ask(scheduler, PROMPT, 4)
    gate.step()
    doomed.ticket.cancel()
    gate.step()
    gate.open()
    assert doomed.wait().error is CANCELLED
    assert len(other.tokens()) == 4
    assert gate.sizes == [[9], [1, 9], [1], [1], [1]]


def test_cancelled_while_waiting(gated: tuple[Llama, Gate], start: Start) -> None:
    model, gate = gated
    scheduler = start(model)
    calls = [ask(scheduler, PROMPT, 3)]
    gate.await_step()
    calls += [ask(scheduler, PROMPT, 3) for _ in range(model.config.max_batch_size)]
    calls[-1].ticket.cancel()
    gate.open()
    assert calls[-1].wait().error is CANCELLED
    assert {tuple(call.tokens()) for call in calls[:-1]} == {tuple(calls[0].tokens())}


def test_streamed_updates_join_to_the_whole_answer(engine: Engine, start: Start) -> None:
    for lookahead in (None, Lookahead(3, 3, 3)):
        scheduler = start(engine(Tiny()), lookahead)
        whole = ask(scheduler, PROMPT, 20)
        streamed = ask(scheduler, PROMPT, 20, streaming=True)
        assert streamed.tokens() == whole.tokens()
        assert len(whole.updates) == 1
        assert len(streamed.updates) > 1
        assert [update.finished for update in streamed.updates][:-1] == [False] * (
            len(streamed.updates) - 1
        )


def test_a_long_prompt_is_computed_in_pieces(engine: Engine, start: Start) -> None:
    tiny = Tiny()
    prompt = np.random.default_rng(0).integers(0, 97, 300).tolist()
    call = ask(start(engine(tiny)), prompt, 1, want_context_logits=True)
    expected = logits(tiny, prompt)
    assert call.tokens() == [int(expected[-1].argmax())]
    context = call.wait().context_logits
    assert context is not None
    assert np.allclose(context, expected, atol=1e-3)


def test_a_repeated_prefix_is_not_computed_again(engine: Engine, start: Start) -> None:
    scheduler = start(engine(Tiny()))
    first = ask(scheduler, PROMPT, 10)
    again = ask(scheduler, PROMPT + first.tokens()[:4], 6)
    assert again.tokens() == first.tokens()[4:]
    assert (first.wait().reused, again.wait().reused) == (0, len(PROMPT) + 3)
    usage = [call.wait().usage for call in (first, again)]
    assert [(used.new_blocks, used.reused_blocks) for used in usage] == [(1, 0), (0, 1)]


def test_times_of_a_request_are_in_order(engine: Engine, start: Start) -> None:
    call = ask(start(engine(Tiny())), PROMPT, 5, streaming=True)
    call.tokens()
    first, last = call.updates[0].usage, call.updates[-1].usage
    assert 0.0 < first.arrived <= first.scheduled <= first.first_token == first.last_token
    assert (last.arrived, last.first_token) == (first.arrived, first.first_token)
    assert last.last_token > first.last_token


def test_requested_log_probabilities_and_logits_are_reported(engine: Engine, start: Start) -> None:
    tiny = Tiny()
    scheduler = start(engine(tiny))
    fields = {"want_log_probs": True, "want_generation_logits": True}
    call = ask(scheduler, PROMPT, 5, **fields)
    tokens, last = call.tokens(), call.wait()
    rows = logits(tiny, PROMPT + tokens)[len(PROMPT) - 1 : -1]
    assert np.allclose(np.stack(last.generation_logits), rows, atol=1e-3)
    expected = [row[t] - np.log(np.exp(row).sum()) for row, t in zip(rows, tokens, strict=True)]
    assert np.allclose(last.log_probs, expected, atol=1e-3)
    assert np.isclose(last.cum_log_prob, sum(expected), atol=1e-3)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"prompt": [1] * 384}, ("384", "maximum input length (383)")),
        ({"draft": [1] * 17}, ("draft tokens (17)", "maximum number of draft tokens (16)")),
        ({"prompt": [1] * 380, "draft": [1] * 4}, ("exceed max_seq_len (384)",)),
        ({"prompt": [1] * 368}, ("prompt (368)", "step (16) leave no token of max_seq_len (384)")),
    ],
)
def test_requests_that_can_never_run_are_refused(
    fields: dict[str, Any], named: tuple[str, ...], engine: Engine, start: Start
) -> None:
    scheduler = start(engine(Tiny()))
    prompt = fields.pop("prompt", PROMPT)
    with pytest.raises(RequestError) as refusal:
        ask(scheduler, prompt, 20, **fields)
    assert all(word in str(refusal.value) for word in named)


def test_a_small_cache_queues_and_a_request_too_large_for_it_is_refused(
    engine: Engine, start: Start
) -> None:
    scheduler = start(engine(Tiny()), kv_tokens=256)
    calls = [ask(scheduler, [index, *PROMPT], 30) for index in range(6)]
    assert all(len(call.tokens()) == 30 for call in calls)
    with pytest.raises(RequestError, match="max_tokens_in_paged_kv_cache is 256"):
        ask(scheduler, PROMPT, 300)


def test_closing_ends_every_request_with_an_error(gated: tuple[Llama, Gate], start: Start) -> None:
    model, gate = gated
    scheduler = start(model)
    running = ask(scheduler, PROMPT, 100)
    gate.await_step()
    waiting = ask(scheduler, PROMPT, 100)
    closing = threading.Thread(target=scheduler.close)
    closing.start()
    gate.open()
    closing.join(DEADLINE_SECONDS)
    assert not closing.is_alive()
    assert running.wait().error is UNLOADED
    assert waiting.wait().error is UNLOADED
    with pytest.raises(RequestError, match="being unloaded"):
        ask(scheduler, PROMPT, 1)


def test_a_failing_request_does_not_affect_others(
    engine: Engine, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def choose(rules: Sampling, *rest: Any) -> Any:
        if rules.seed == 666:
            raise ZeroDivisionError
        return sampling.choose(rules, *rest)

    monkeypatch.setattr(sequence, "choose", choose)
    scheduler = start(engine(Tiny()))
    calls = [ask(scheduler, PROMPT, 8, rules=Sampling(seed=seed)) for seed in (1, 666, 2)]
    assert calls[1].wait().error is FAILED
    assert len(calls[0].tokens()) == len(calls[2].tokens()) == 8


def test_lookahead_shapes_may_only_shrink(engine: Engine, start: Start) -> None:
    scheduler = start(engine(Tiny()), Lookahead(3, 3, 3))
    expected = ask(scheduler, PROMPT, 10).tokens()
    for shape in ((1, 1, 0), (2, 2, 1), (3, 3, 3)):
        assert ask(scheduler, PROMPT, 10, lookahead=shape).tokens() == expected
    with pytest.raises(RequestError, match="exceeds the model's 3, 3, 3"):
        ask(scheduler, PROMPT, 10, lookahead=(4, 3, 3))


def test_rows_beyond_max_num_tokens_wait_for_the_next_pass(engine: Engine, start: Start) -> None:
    """Each pass has at most max_num_tokens rows, and every sequence gets its tokens."""
    model = engine(Tiny())
    scheduler = start(model)
    prompts = [np.random.default_rng(seed).integers(0, 97, 250).tolist() for seed in range(8)]
    calls: list[Call] = [ask(scheduler, prompt, 3) for prompt in prompts]
    expected = [ask(start(model), prompt, 3).tokens() for prompt in prompts]
    assert [call.tokens() for call in calls] == expected


class Clock:
    """A fake of the module `time`; only `sleep` and the test advance it."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds


def test_simulated_steps_begin_with_the_arrival_and_last_whole_lengths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(pacing, "time", clock)
    pace = pacing.Pace(2.0)
    # Reading the request took 0.5 seconds; computing its first step ends at 101.0.
    pace.join(99.5)
    clock.now = 101.0
    assert pace.end() == 101.5
    pace.wait()
    assert clock.now == 101.5
    assert pace.end() == 103.5
    # A step that takes longer to compute than on the device ends late; the next step does not.
    clock.now = 104.0
    assert pace.end() == 105.5
    clock.now = 108.0
    assert pace.end() == 108.0
    assert pace.end() == 109.5
    # A request that arrived during the last step waits for the end of that step.
    pace.join(108.0)
    assert pace.end() == 111.5
    # No response is due before its steps end, even while the pace catches up after a delay.
    clock.now = 113.0
    assert pace.end() == 113.5
    pace.join(114.0)
    assert pace.end() == 116.0
    # The pace catches up by at most one step.
    clock.now = 130.0
    assert pace.end() == 130.0
    assert pace.end() == 130.0
    assert pace.end() == 132.0


def test_updates_are_due_when_a_simulated_device_has_them(start: Start, engine: Engine) -> None:
    call = ask(start(engine(Tiny()), step_latency=0.05), PROMPT, 3)
    # The engine adds one step at a time, which rounds differently from a product.
    assert call.wait().due - call.ticket.arrived >= 3 * 0.05 - 1e-9
    assert ask(start(engine(Tiny())), PROMPT, 1).wait().due == 0.0
