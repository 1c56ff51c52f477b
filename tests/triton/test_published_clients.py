"""The published clients can read the outputs of the models, on servers of every release."""

from __future__ import annotations

import pytest

from support.published_clients.comparison import speculative_test
from support.published_clients.draft_target import draft_target
from support.published_clients.end_to_end import end_to_end
from support.published_clients.streams import KV_STATISTICS, PERF_METRICS
from support.published_clients.token_level import token_level
from support.triton_client import ask, ask_once, text
from support.triton_server import Server

BLS = "tensorrt_llm_bls"
PROMPT = "def read_lines(path):\n"
PROMPTS = [PROMPT, "import os\n\n", "class Node:\n"]
LENGTH = 24
VOCABULARY = 1024

both_models = pytest.mark.parametrize("model", ["ensemble", BLS])


@pytest.fixture(params=["older_server", "server", "newer_server"])
def release(request: pytest.FixtureRequest) -> Server:
    """Return a server of each release: 0.18.0 without streaming, 0.19.0 and 1.2.1 with it."""
    server: Server = request.getfixturevalue(request.param)
    return server


@pytest.fixture(params=["server", "newer_server"])
def streaming_release(request: pytest.FixtureRequest) -> Server:
    """Return a server of each release that streams."""
    server: Server = request.getfixturevalue(request.param)
    return server


def expected_text(server: Server, prompt: str = PROMPT) -> str:
    return text(ask(server.url, "ensemble", text_input=prompt, max_tokens=LENGTH))


@both_models
def test_end_to_end_client_reads_a_whole_answer(release: Server, model: str) -> None:
    reading = end_to_end(release.url, model, PROMPTS, LENGTH)
    assert reading.texts == [expected_text(release, prompt) for prompt in PROMPTS]
    assert all(text.startswith(p) for text, p in zip(reading.texts, PROMPTS, strict=True))


@both_models
def test_end_to_end_client_joins_a_stream(streaming_release: Server, model: str) -> None:
    reading = end_to_end(streaming_release.url, model, [PROMPT], LENGTH, streaming=True)
    assert PROMPT + reading.texts[0] == expected_text(streaming_release)
    assert reading.responses > 1


@both_models
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
def test_end_to_end_client_assigns_rows_of_a_batch(
    streaming_release: Server, model: str, streaming: bool
) -> None:
    url = streaming_release.url
    reading = end_to_end(url, model, PROMPTS, LENGTH, batched=True, streaming=streaming)
    expected = [expected_text(streaming_release, prompt) for prompt in PROMPTS]
    prompts = PROMPTS if streaming else [""] * len(PROMPTS)
    assert [p + text for p, text in zip(prompts, reading.texts, strict=True)] == expected


@both_models
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
def test_end_to_end_client_reads_perf_metrics(
    streaming_release: Server, model: str, streaming: bool
) -> None:
    reading = end_to_end(
        streaming_release.url,
        model,
        [PROMPT],
        LENGTH,
        streaming=streaming,
        flags=["return_perf_metrics"],
    )
    assert len(reading.statistics) == reading.responses
    for numbers in reading.statistics:
        assert set(numbers) == set(PERF_METRICS)
        times = [numbers[name] for name in PERF_METRICS if name.endswith("_time_ns")]
        assert times == sorted(times)
        assert times[0] > 0
        assert numbers["kv_cache_alloc_total_blocks"] >= numbers["kv_cache_alloc_new_blocks"]


@both_models
def test_end_to_end_client_reads_kv_statistics(older_server: Server, model: str) -> None:
    flags = ["return_kv_cache_reuse_stats"]
    reading = end_to_end(older_server.url, model, [PROMPT], LENGTH, flags=flags)
    (numbers,) = reading.statistics
    assert set(numbers) == set(KV_STATISTICS)
    assert numbers["kv_cache_alloc_total_blocks"] >= numbers["kv_cache_alloc_new_blocks"]


@both_models
def test_end_to_end_client_reads_log_probs_and_logits(release: Server, model: str) -> None:
    flags = ["return_log_probs", "return_context_logits", "return_generation_logits"]
    arrays = end_to_end(release.url, model, [PROMPT], LENGTH, flags=flags).arrays
    prompt = arrays["context_logits"].shape[1]
    assert {name: array.shape for name, array in arrays.items()} == {
        "cum_log_probs": (1, 1),
        "output_log_probs": (1, 1, LENGTH),
        "context_logits": (1, prompt, VOCABULARY),
        "generation_logits": (1, 1, LENGTH, VOCABULARY),
    }


def test_end_to_end_client_sends_empty_bias_lists(release: Server) -> None:
    for model in ("ensemble", BLS):
        reading = end_to_end(release.url, model, [PROMPT], LENGTH, biased=True)
        assert reading.texts == [expected_text(release)]


def test_draft_target_client_reads_both_engines(older_server: Server) -> None:
    urls = (older_server.url, older_server.url)
    assert draft_target(urls, PROMPT, LENGTH) == expected_text(older_server)


def _prompt(server: Server) -> list[int]:
    tokenized = ask_once(server.url, "preprocessing", QUERY=PROMPT, REQUEST_OUTPUT_LEN=1)
    return [int(token) for token in tokenized["INPUT_ID"][0]]


def test_token_level_client_reads_one_response(older_server: Server) -> None:
    prompt = _prompt(older_server)
    flags = ["return_log_probs", "return_generation_logits"]
    reading = token_level(older_server.url, prompt, flags=flags)
    assert reading.ids[: len(prompt)] == prompt
    assert len(reading.ids) == reading.length == len(prompt) + 16
    assert {name: array.shape for name, array in reading.arrays.items()} == {
        "cum_log_probs": (1,),
        "output_log_probs": (1, 16),
        "generation_logits": (1, 16, VOCABULARY),
    }


def test_token_level_client_sends_draft_tokens(older_server: Server) -> None:
    prompt = _prompt(older_server)
    plain = token_level(older_server.url, prompt).ids
    draft = plain[len(prompt) : len(prompt) + 4]
    verified = token_level(older_server.url, prompt, 5, draft=draft)
    assert verified.ids == plain[: len(prompt) + 5]


def test_token_level_client_joins_a_stream(
    streaming_release: Server, older_server: Server
) -> None:
    prompt = _prompt(streaming_release)
    flags = ["return_perf_metrics"]
    reading = token_level(streaming_release.url, prompt, streaming=True, flags=flags)
    assert reading.ids == token_level(older_server.url, prompt).ids
    assert all(reading.arrays[name].shape == (1,) for name in PERF_METRICS)


@pytest.mark.parametrize("bls", [False, True], ids=["client", "bls"])
def test_speculative_decoding_test_finds_no_difference(older_server: Server, bls: bool) -> None:
    records = [
        {"input": "def f(x):", "instruction": "return x", "output": "one two three four five"},
        {"input": "import os\n", "instruction": "class Node:", "output": "a b c d e f g h"},
    ]
    urls = (older_server.url,) * 3
    assert speculative_test(urls, records, bls=bls) == (0, len(records))
