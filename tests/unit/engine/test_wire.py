"""Requests and answers as tensors; the error for an invalid tensor names this tensor."""

import random
import sys
from typing import Any

import numpy as np
import pytest

from specdec.images.backend.tensorrtllm.reference_engine.answers import OUTPUTS
from specdec.images.backend.tensorrtllm.reference_engine.answers import answer as answer_with
from specdec.images.backend.tensorrtllm.reference_engine.errors import RequestError
from specdec.images.backend.tensorrtllm.reference_engine.inputs import Call
from specdec.images.backend.tensorrtllm.reference_engine.request import (
    Request,
    Update,
    Usage,
)
from specdec.images.backend.tensorrtllm.reference_engine.wire import parse_call
from specdec.images.backend.tensorrtllm.reference_engine.word_lists import (
    WordList,
    banned,
    ends_with,
    parse,
)
from unit.engine.test_kv import CONFIG

GOOD: dict[str, Any] = {
    "input_ids": np.array([[1, 2, 3, 0]], np.int32),
    "input_lengths": np.array([3], np.int32),
    "request_output_len": np.array([5], np.int32),
}


def request(**extra: Any) -> Any:
    arrays = {**GOOD, **{name: np.asarray(value) for name, value in extra.items()}}
    return parse_call(Call(arrays), CONFIG)[0]


def answer(asked: Request, update: Update, row: int, *, exclude_input: bool) -> Any:
    """Return an answer with every output of the backend."""
    return answer_with(asked, update, row, exclude_input, OUTPUTS)


def test_a_plain_request() -> None:
    parsed = request()
    assert parsed.prompt.tolist() == [1, 2, 3]
    assert parsed.max_new == 5
    assert parsed.draft is None
    assert parsed.rules.greedy
    assert not parsed.streaming


def test_shapes_with_and_without_a_unit_dimension_are_read_alike() -> None:
    for shape in ((1,), (1, 1)):
        parsed = request(
            input_lengths=np.full(shape, 2, np.int32),
            temperature=np.full(shape, 0.5, np.float32),
            runtime_top_p=np.full(shape, 0.9, np.float32),
            streaming=np.full(shape, True),
            random_seed=np.full(shape, 2**63 + 5, np.uint64),
        )
        assert parsed.prompt.tolist() == [1, 2]
        assert parsed.rules.temperature == 0.5
        assert parsed.rules.seed == 2**63 + 5
        assert parsed.streaming


def test_renamed_fields_of_later_versions() -> None:
    parsed = request(min_tokens=[4], seed=np.array([9], np.uint64))
    assert (parsed.rules.min_length, parsed.rules.seed) == (4, 9)


def test_drafts_stop_words_and_bias() -> None:
    parsed = request(
        draft_input_ids=[[4, 5]],
        draft_logits=np.zeros((1, 2, 8), np.float32),
        draft_acceptance_threshold=np.array([0.5], np.float32),
        stop_words_list=[[[1, 2, 3], [1, 3, -1]]],
        bad_words_list=[[[7], [1]]],
        embedding_bias=np.ones((1, 8), np.float32),
    )
    assert parsed.draft.tolist() == [4, 5]
    assert parsed.draft_logits.shape == (2, 8)
    assert parsed.threshold == 0.5
    assert parsed.stop_words == ((1,), (2, 3))
    assert parsed.rules.bad_words == ((7,),)
    assert parsed.rules.bias.tolist() == [1.0] * 8


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ({"input_ids": np.empty((1, 0), np.int32)}, ("input_ids", "missing or empty")),
        ({"input_ids": [[1, 9]]}, ("input_ids", "9", "vocabulary of 8")),
        ({"input_ids": [[-1]]}, ("input_ids", "-1")),
        ({"input_lengths": [5]}, ("input_lengths", "5", "between 1 and 4")),
        ({"input_lengths": [0]}, ("input_lengths", "0")),
        ({"request_output_len": [0]}, ("request_output_len", "at least 1")),
        ({"draft_input_ids": [[8]]}, ("draft_input_ids", "8")),
        (
            {"draft_input_ids": [[1]], "draft_logits": np.zeros((1, 2, 8))},
            ("draft_logits", "[1, 8]"),
        ),
        ({"draft_acceptance_threshold": [1.5]}, ("draft_acceptance_threshold", "1.5", "(0, 1]")),
        ({"draft_acceptance_threshold": [0.0]}, ("draft_acceptance_threshold", "(0, 1]")),
        ({"beam_width": [2]}, ("beam_width", "2", "must be 1")),
        ({"num_return_sequences": [3]}, ("num_return_sequences", "3", "must be 1")),
        ({"runtime_top_k": [-1]}, ("runtime_top_k", "-1")),
        ({"runtime_top_p": [1.5]}, ("runtime_top_p", "1.5")),
        ({"temperature": [-0.5]}, ("temperature", "-0.5")),
        ({"temperature": [np.nan]}, ("temperature", "finite")),
        ({"repetition_penalty": [0.0]}, ("repetition_penalty", "more than 0")),
        ({"embedding_bias": np.zeros((1, 3))}, ("embedding_bias", "3", "8")),
        ({"stop_words_list": [[[1, 2], [3, -1]]]}, ("stop_words_list", "3")),
        ({"bad_words_list": [[[1, 2, 3], [2, 1, -1]]]}, ("bad_words_list", "1")),
        ({"bad_words_list": [[1, 2]]}, ("bad_words_list", "[2, n]")),
        ({"lookahead_window_size": [2]}, ("lookahead_window_size", "all three")),
        ({"lora_task_id": [4]}, ("lora_task_id", "leave it out")),
        ({"end_id": [[1, 2]]}, ("end_id", "one value")),
    ],
)
def test_bad_requests_are_refused_by_name(extra: dict[str, Any], named: tuple[str, ...]) -> None:
    with pytest.raises(RequestError) as refusal:
        request(**extra)
    for word in named:
        assert word in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_tensor_with_too_few_rows_is_refused() -> None:
    with pytest.raises(RequestError, match="input_lengths has 1 rows"):
        parse_call(Call({**GOOD, "input_ids": np.ones((2, 4), np.int32)}), CONFIG)


def test_every_row_of_a_call_has_its_own_values() -> None:
    arrays: dict[str, Any] = {
        "input_ids": np.array([[1, 2, 3], [4, 5, 0]], np.int32),
        "input_lengths": np.array([[3], [2]], np.int32),
        "request_output_len": np.array([[5], [6]], np.int32),
        "draft_input_ids": np.array([[1], [7]], np.int32),
        "random_seed": np.array([[8], [9]], np.uint64),
        "temperature": np.array([[0.5], [2.0]], np.float32),
        "streaming": np.array([[False], [True]]),
    }
    first, second = parse_call(Call(arrays), CONFIG)
    assert (first.prompt.tolist(), second.prompt.tolist()) == ([1, 2, 3], [4, 5])
    assert (first.max_new, second.max_new) == (5, 6)
    assert first.draft is not None
    assert second.draft is not None
    assert (first.draft.tolist(), second.draft.tolist()) == ([1], [7])
    assert (first.rules.seed, second.rules.seed) == (8, 9)
    assert (first.rules.temperature, second.rules.temperature) == (0.5, 2.0)
    assert (first.streaming, second.streaming) == (False, True)


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        ({"input_ids": [[1, 2], [3, 8]]}, "input_ids holds 8"),
        ({"draft_input_ids": [[1], [-2]]}, "draft_input_ids holds -2"),
        ({"draft_input_ids": [[1]]}, "draft_input_ids has 1 rows, fewer than input_ids"),
        ({"temperature": [1.0, np.inf]}, "temperature must be finite"),
        ({"request_output_len": [5, 0]}, "request_output_len must be at least 1"),
        ({"end_id": [[1, 2], [3, 4]]}, "end_id must hold one value a row, not 2"),
    ],
)
def test_errors_of_a_later_row_are_reported(extra: dict[str, Any], sentence: str) -> None:
    arrays: dict[str, Any] = {"input_ids": [[1, 2], [3, 4]], "request_output_len": [5, 5], **extra}
    with pytest.raises(RequestError, match=sentence):
        parse_call(Call({name: np.asarray(value) for name, value in arrays.items()}), CONFIG)


def update(tokens: list[int]) -> Update:
    logits = [np.full(8, token, np.float32) for token in tokens]
    return Update(tokens, [-0.5] * len(tokens), -1.0, logits, None, True, 4, 3, 2, 0)


def test_a_whole_answer_begins_with_the_prompt_unless_excluded() -> None:
    tensors = answer(request(), update([6, 7]), 0, exclude_input=False)
    assert tensors["output_ids"].tolist() == [[[1, 2, 3, 6, 7]]]
    assert tensors["sequence_length"].tolist() == [[5]]
    tensors = answer(request(), update([6, 7]), 0, exclude_input=True)
    assert tensors["output_ids"].tolist() == [[[6, 7]]]
    streamed = answer(request(streaming=[True]), update([6]), 3, exclude_input=False)
    assert streamed["output_ids"].tolist() == [[[6]]]
    assert streamed["batch_index"].tolist() == [[3]]


def test_output_tensors_have_the_ranks_triton_declares() -> None:
    tensors = answer(request(return_log_probs=[True]), update([6, 7]), 0, exclude_input=True)
    assert tensors["output_log_probs"].shape == (1, 1, 2)
    assert tensors["generation_logits"].shape == (1, 1, 2, 8)
    assert tensors["generation_logits"][0, 0, 1].tolist() == [7.0] * 8
    assert tensors["acceptance_rate"].tolist() == [[0.75]]
    assert tensors["total_draft_tokens"].tolist() == [[4]]
    assert not {"num_input_tokens", "num_output_tokens"} & set(tensors)
    empty = answer(request(), update([]), 0, exclude_input=True)
    assert empty["output_ids"].shape == (1, 1, 0)


def test_usage_becomes_blocks_and_nanoseconds() -> None:
    used = update([6])
    used.usage = Usage(2, 1, arrived=1.0, scheduled=1.5, first_token=2.25, last_token=3.125)
    tensors = answer(request(), used, 0, exclude_input=True)
    numbers = {name: tensors[name].tolist() for name in tensors if name.startswith("kv_")}
    assert numbers == {
        "kv_cache_alloc_new_blocks": [[2]],
        "kv_cache_reused_blocks": [[1]],
        "kv_cache_alloc_total_blocks": [[3]],
    }
    times = {name: tensors[name].tolist() for name in tensors if name.endswith("_time_ns")}
    assert times == {
        "arrival_time_ns": [[1_000_000_000]],
        "first_scheduled_time_ns": [[1_500_000_000]],
        "first_token_time_ns": [[2_250_000_000]],
        "last_token_time_ns": [[3_125_000_000]],
    }


def test_only_requested_outputs_are_made() -> None:
    asked = ("batch_index", "num_input_tokens", "unknown", "output_ids")
    tensors = answer_with(request(), update([6]), 2, True, asked)
    assert {name: array.tolist() for name, array in tensors.items()} == {
        "batch_index": [[2]],
        "output_ids": [[[6]]],
    }


@pytest.mark.parametrize("streaming", [False, True])
def test_counts_of_tokens_are_answered_when_asked_for(streaming: bool) -> None:
    asked = {"return_num_input_tokens": [True], "return_num_output_tokens": [True]}
    tensors = answer(
        request(streaming=[streaming], **asked), update([6, 7]), 0, exclude_input=False
    )
    assert tensors["num_input_tokens"].tolist() == [[3]]
    assert tensors["num_output_tokens"].tolist() == [[2]]


def test_a_word_list_is_parsed_and_matched() -> None:
    listed = parse(np.array([[1, 2, 3], [1, 3, -1]]), "stop_words_list")
    assert list(listed) == [(1,), (2, 3)]
    assert ends_with(np.array([9, 2, 3]), listed)
    assert not ends_with(np.array([3]), WordList(((2, 3),)))
    assert list(banned(np.array([9, 2]), listed)) == [1, 3]
    assert parse(np.empty((2, 0), np.int32), "stop_words_list") == ()


def _random_list(numbers: random.Random) -> WordList:
    listed = [
        tuple(numbers.randrange(3) for _ in range(numbers.randint(1, 5)))
        for _ in range(numbers.randrange(8))
    ]
    return WordList(listed)


def test_word_lists_match_as_by_comparing_every_item() -> None:
    numbers = random.Random(1)
    ended = 0
    for _ in range(3000):
        listed = _random_list(numbers)
        tokens = [numbers.randrange(3) for _ in range(numbers.randrange(9))]
        behind = [word for word in listed if tokens[len(tokens) - len(word) :] == list(word)]
        ends = any(len(word) <= len(tokens) for word in behind)
        ended += ends
        assert ends_with(np.array(tokens, np.int64), listed) == ends
        completed = {
            word[-1]
            for word in listed
            if len(word) <= len(tokens) + 1
            and tokens[len(tokens) - len(word) + 1 :] == list(word[:-1])
        }
        banned_ids = banned(np.array(tokens, np.int64), listed)
        assert set(banned_ids.tolist()) == completed, (tokens, listed)
    assert 500 < ended < 2500


@pytest.mark.slow
def test_a_step_costs_no_more_for_a_long_word_list() -> None:
    """A comparison with 100 000 items for every token would take longer than the model itself."""
    listed = WordList((number, number + 1, 7) for number in range(100_000))
    tokens = np.arange(1000)
    # The first calls build the index.
    ends_with(tokens, listed)
    banned(tokens, listed)
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        assert not ends_with(tokens, listed)
        assert banned(tokens, listed).tolist() == [7]
    finally:
        sys.setprofile(None)
    assert calls < 100
