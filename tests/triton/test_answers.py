"""Options of a request to the BLS, and the error messages of invalid requests."""

from typing import Any

import pytest

from cluster.processes import until
from support.triton_client import RefusedError, ask, ask_once, stream, text
from support.triton_server import Server

BLS = "tensorrt_llm_bls"
PROMPT = "def read_lines(path):\n"


def generate(server: Server, model: str = BLS, **values: Any) -> str:
    values = {"text_input": PROMPT, "max_tokens": 32, "exclude_input_in_output": True, **values}
    return text(ask(server.url, model, **values))


def test_a_stream_brings_a_round_at_a_time(server: Server) -> None:
    parts = ask(server.url, BLS, text_input=PROMPT, max_tokens=32, stream=True)
    assert 1 < len(parts) < 32


def test_statistics_of_the_answer(server: Server) -> None:
    (part,) = ask(server.url, BLS, text_input=PROMPT, max_tokens=32, return_perf_metrics=True)
    drafted = int(part["total_draft_tokens"].item())
    accepted = int(part["total_accepted_draft_tokens"].item())
    assert 0 < accepted <= drafted
    assert part["acceptance_rate"].item() == pytest.approx(accepted / drafted)


@pytest.mark.parametrize("stream", [False, True])
def test_histogram_counts_every_verification_step(server: Server, stream: bool) -> None:
    names = ("rounds", "accepted_tokens", "accepted_tokens_per_position")
    before = {name: server.metric(f"specdec_{name}_total") for name in names}
    values = {"text_input": PROMPT, "max_tokens": 32, "return_perf_metrics": True}
    last = ask(server.url, BLS, stream=stream, **values)[-1]
    histogram = last["acceptance_histogram"].reshape(-1)
    accepted = int(last["total_accepted_draft_tokens"].item())
    assert histogram.shape == last["acceptance_histogram"].shape[1:]
    assert accepted == (histogram * range(histogram.size)).sum() > 0

    steps = int(histogram.sum())
    expected = dict(zip(names, (steps, accepted, accepted), strict=True))

    def grown() -> dict[str, float]:
        return {name: server.metric(f"specdec_{name}_total") - before[name] for name in names}

    until(lambda: grown() == expected, lambda: f"{grown()} is not {expected}")


def test_counters_have_the_names_that_dashboards_for_vllm_read(server: Server) -> None:
    generate(server, max_tokens=20)
    for vllm, ours in (
        ("num_drafts", "rounds"),
        ("num_draft_tokens", "draft_tokens"),
        ("num_accepted_tokens", "accepted_tokens"),
        ("num_accepted_tokens_per_pos", "accepted_tokens_per_position"),
    ):
        count = server.metric(f"vllm:spec_decode_{vllm}_total")
        assert count == server.metric(f"specdec_{ours}_total") > 0
    page = server.get_metrics()
    assert "vllm:spec_decode_num_accepted_tokens_per_pos_total{" in page
    assert 'position="0"' in page


def test_metrics_grow_with_an_answer(server: Server) -> None:
    names = ("draft_tokens", "accepted_tokens", "rounds", "generated_tokens")
    before = {name: server.metric(f"specdec_{name}_total") for name in names}
    generate(server, max_tokens=20, num_draft_tokens=4)
    until(
        lambda: server.metric("specdec_generated_tokens_total") > before["generated_tokens"],
        lambda: "the metrics did not move",
    )
    grown = {name: server.metric(f"specdec_{name}_total") - before[name] for name in names}
    assert grown["generated_tokens"] == grown["accepted_tokens"] + grown["rounds"] == 20
    assert grown["draft_tokens"] >= grown["accepted_tokens"] > 0
    assert server.metric("specdec_requests_in_flight") == 0
    assert server.metric("specdec_draft_length") == 4


def test_no_draft_tokens_takes_the_plain_path(server: Server) -> None:
    rounds = server.metric("specdec_rounds_total")
    assert generate(server, num_draft_tokens=0) == generate(server, num_draft_tokens=4)
    plain = server.metric("specdec_rounds_total") - rounds
    assert plain < 32


def test_log_probs_cover_the_whole_answer(server: Server) -> None:
    values = {"text_input": PROMPT, "max_tokens": 16, "return_log_probs": True}
    (speculative,) = ask(server.url, BLS, **values)
    (plain,) = ask(server.url, "ensemble", **values)
    ours, theirs = (p["output_log_probs"].reshape(-1) for p in (speculative, plain))
    assert ours == pytest.approx(theirs, abs=1e-3)
    assert speculative["cum_log_probs"].item() == pytest.approx(float(ours.sum()), abs=1e-3)


def test_several_stop_words_end_the_answer(server: Server) -> None:
    whole = generate(server)
    word = whole[10:14]
    stopped = generate(server, stop_words=["never seen", word])
    assert stopped == whole[: whole.index(word) + len(word)]
    assert generate(server, stop_words=["never seen", word], stream=True) == stopped


def test_an_answer_ends_where_the_sequence_ends(server: Server) -> None:
    endless: dict[str, Any] = {"max_tokens": 100000, "end_id": -1}
    assert generate(server, **endless) == generate(server, model="ensemble", **endless)


@pytest.mark.parametrize("option", ["bad_words", "embedding_bias", "penalty", "min_length"])
def test_options_give_what_the_ensemble_gives(server: Server, option: str) -> None:
    options: dict[str, dict[str, Any]] = {
        "bad_words": {"bad_words": [" return", " self"]},
        "embedding_bias": {"embedding_bias_words": ["x"], "embedding_bias_weights": [4.0]},
        "penalty": {"repetition_penalty": 1.3, "frequency_penalty": 0.2},
        # Without the minimum the answer would end at the first `#`, its second token.
        "min_length": {"min_length": 24, "end_id": 3},
    }
    speculative = generate(server, **options[option])
    assert speculative == generate(server, model="ensemble", **options[option])


def test_sampled_chunks_concatenate_to_the_whole(server: Server) -> None:
    # At this temperature, tokens often end within a character.
    hot: dict[str, Any] = {"temperature": 3.0, "top_k": 1024, "random_seed": 3, "max_tokens": 120}
    assert generate(server, stream=True, **hot) == generate(server, **hot)


def test_acceptance_by_logits_answers(server: Server) -> None:
    by_tokens = generate(server)
    assert generate(server, use_draft_logits=True) == by_tokens


def test_several_prompts_in_one_request(server: Server, older_server: Server) -> None:
    rows = [[PROMPT], ["import os\n\n"], ["class Node:\n"]]
    values = {"text_input": rows, "max_tokens": [[12]] * 3}
    alone = [text(ask(server.url, BLS, text_input=row[0], max_tokens=12)) for row in rows]
    parts = ask(server.url, BLS, **values)
    texts = {int(p["batch_index"].item()): p["text_output"].item().decode() for p in parts}
    assert [texts[row] for row in range(3)] == alone
    once = ask_once(older_server.url, BLS, **values)
    assert [t.decode() for t in once["text_output"].reshape(-1)] == alone


@pytest.mark.parametrize("asking", [0, 1])
def test_prompts_of_one_request_may_ask_for_different_things(
    older_server: Server, asking: int
) -> None:
    arrays = ask_once(
        older_server.url,
        BLS,
        text_input=[[PROMPT], ["import os\n\n"]],
        max_tokens=[[6]] * 2,
        return_log_probs=[[row == asking] for row in range(2)],
    )
    assert arrays["output_log_probs"][asking].any()
    assert not arrays["output_log_probs"][1 - asking].any()


def test_cancelling_frees_the_slot(server: Server) -> None:
    with stream(
        server.url, BLS, text_input=PROMPT, max_tokens=400, stream=True, num_draft_tokens=1
    ) as parts:
        next(iter(parts))
        parts.cancel()
    until(
        lambda: (
            (generate(server, max_tokens=1), server.metric("specdec_requests_in_flight"))[1] == 0
        ),
        lambda: "the cancelled request is still in flight",
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"num_draft_tokens": 9}, "num_draft_tokens is 9, but this server allows at most 8"),
        ({"num_draft_tokens": -1}, "num_draft_tokens is -1"),
        ({"max_tokens": 0}, "max_tokens is 0: set it to 1 or more"),
        ({"text_input": ""}, "text_input is empty"),
        ({"text_input": b"\xff\xfe"}, "text_input is not UTF-8 at byte 0"),
        ({"beam_width": 2}, "beam_width is 2"),
        ({"num_return_sequences": 3}, "num_return_sequences is 3"),
        ({"image_url_input": "x"}, "image_url_input is given"),
        ({"return_context_logits": True, "num_draft_tokens": 2}, "return_context_logits cannot"),
        ({"embedding_bias_words": ["a"]}, "1 words and embedding_bias_weights 0 weights"),
        ({"text_input": "x y " * 600}, "text_input has 1201 tokens, more than the limit of 511"),
        ({"lora_task_id": 1}, "lora_task_id"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_requests_get_one_sentence(
    server: Server, values: dict[str, Any], expected: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        generate(server, **values)
    message = str(refused.value)
    assert expected in message
    assert "Traceback" not in message
    assert "\n" not in message
    assert generate(server, max_tokens=4)


def test_a_unary_server_refuses_to_stream(older_server: Server) -> None:
    with pytest.raises(RefusedError, match="stream is true, but this server answers once"):
        ask_once(older_server.url, BLS, text_input=PROMPT, max_tokens=4, stream=True)


def test_logits_by_default_take_the_plain_path(server: Server) -> None:
    before = server.metric("specdec_fallback_total")
    (part,) = ask(server.url, BLS, text_input=PROMPT, max_tokens=4, return_generation_logits=True)
    assert part["generation_logits"].shape == (1, 1, 4, 1024)
    assert server.metric("specdec_fallback_total") == before + 1
