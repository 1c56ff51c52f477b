"""The official OpenAI client, through the endpoint, to real servers of every release."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest

from cluster.processes import until
from specdec.client import BadRequestError, Client, Request
from specdec.client.connection import of_url
from specdec.client.load import Settings, measure
from specdec.triton.model_names import BLS
from specdec.triton.repository import RepositoryPlan
from support.openai_cases import (
    LENGTH,
    PROMPT,
    Answer,
    EndpointCases,
    completion,
    template,
    text_of,
)
from support.openai_endpoint import MODEL, OpenAIEndpoint
from support.shipped_pair import PAIR
from support.triton_server import Server
from triton.conftest import Serve

Json = dict[str, Any]


@pytest.fixture(scope="module", params=["older_server", "server", "newer_server"])
def server(request: pytest.FixtureRequest) -> Server:
    """Return a server of each release: 0.18.0 (without streaming), 0.19.0 and 1.2.1."""
    release: Server = request.getfixturevalue(request.param)
    return release


@pytest.fixture(scope="module")
def endpoint(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAIEndpoint]:
    options = ["--chat-template", str(template(tmp_path_factory.mktemp("template")))]
    with OpenAIEndpoint(server.url, PAIR / "target", options) as running:
        yield running


@pytest.fixture(scope="module")
def client(endpoint: OpenAIEndpoint) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=endpoint.url, api_key="none", max_retries=0) as opened:
        yield opened


@pytest.fixture
def another(newer_server: Server, server: Server) -> Iterator[OpenAIEndpoint]:
    if server is not newer_server:
        pytest.skip("covered by the newest release")
    with OpenAIEndpoint(newer_server.url, PAIR / "target") as running:
        yield running


@pytest.fixture(scope="module")
def model() -> str:
    return BLS


@pytest.fixture(scope="module")
def answer(server: Server) -> Answer:
    """Return the target's text without drafts."""

    def expected(prompt: str) -> str:
        with Client(server.url) as direct:
            request = Request(prompt, max_tokens=LENGTH, draft_tokens=0, stream=False)
            return direct.ask(request).text

    return expected


class TestEndpoint(EndpointCases):
    """The cases of every model."""


def test_acceptance_of_drafts_is_reported(
    newer_server: Server, server: Server, client: openai.OpenAI
) -> None:
    if server is not newer_server:
        pytest.skip("covered by the newest release")
    extra = {"num_draft_tokens": 4, "include_metrics": True}
    answer: Any = client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=LENGTH, extra_body=extra
    )
    counts = answer.metrics["speculative_decoding"]
    histogram, steps = counts["acceptance_histogram"], counts["num_spec_steps"]
    accepted = counts["num_accepted_draft_tokens"]
    assert 0 < accepted <= counts["num_draft_tokens"]
    assert sum(histogram) == steps
    assert sum(tokens * count for tokens, count in enumerate(histogram)) == accepted
    assert counts["num_spec_tokens"] / steps == counts["mean_acceptance_length"]
    alone: Any = client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=LENGTH, extra_body={**extra, "num_draft_tokens": 0}
    )
    assert alone.metrics["speculative_decoding"]["num_draft_tokens"] == 0
    assert alone.choices[0].text == answer.choices[0].text


def test_seed_repeats_a_sampled_answer(client: openai.OpenAI) -> None:
    texts = [
        client.completions.create(
            model=MODEL, prompt=PROMPT, max_tokens=LENGTH, temperature=1.5, seed=seed
        ).choices[0].text
        for seed in (5, 5, 6, 7, 8)
    ]  # fmt: skip
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1


@pytest.mark.parametrize("stream", [False, True])
def test_draft_length_above_the_limit_is_refused(client: openai.OpenAI, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError, match="num_draft_tokens is 99"):
        completion(client, stream=stream, extra_body={"num_draft_tokens": 99})


def test_disconnect_ends_the_request(serve: Serve, newer_plan: RepositoryPlan) -> None:
    # SIMULATION: a step takes 200 ms, so the answer has not ended when the client disconnects.
    slow = replace(newer_plan, target=replace(newer_plan.target, step_latency_ms=200.0))
    with (
        serve(slow) as server,
        OpenAIEndpoint(server.url, PAIR / "target") as running,
        openai.OpenAI(base_url=running.url, api_key="none", max_retries=0) as opened,
    ):
        asked: Json = {"model": MODEL, "prompt": PROMPT, "max_tokens": 400}
        with opened.completions.create(**asked, stream=True) as stream:
            next(iter(stream))
        metrics = partial(running.get, "/metrics")
        until(lambda: 'status="499"} 1.0' in metrics(), metrics)


def test_unusable_setting_is_one_sentence(newer_server: Server, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jinja"
    broken.write_text("{% for %}", "utf-8")
    running = OpenAIEndpoint(newer_server.url, tmp_path, ["--chat-template", str(broken)])
    with pytest.raises(RuntimeError, match=r"ended with 2"):
        running.__enter__()


def test_our_client_counts_draft_tokens(server: Server, endpoint: OpenAIEndpoint) -> None:
    with Client(endpoint.url) as ours:
        counts = ours.ask(Request(PROMPT, "", max_tokens=LENGTH, stream=False)).counts
    with Client(server.url) as direct:
        drafts = direct.ask(Request(PROMPT, max_tokens=LENGTH, stream=False)).counts
    # The oldest release counts no draft tokens.
    assert counts == drafts


def test_benchmark_refuses_the_measured_service_as_its_baseline(endpoint: OpenAIEndpoint) -> None:
    settings = Settings(model="", requests=2, output_tokens=12, resamples=100, baseline_model="")
    with pytest.raises(BadRequestError, match="the measured service itself"):
        asyncio.run(measure(of_url(endpoint.url), settings, baseline=of_url(endpoint.url)))


def test_every_end_token_of_the_checkpoint_ends_an_answer(
    newer_server: Server, server: Server, answer: Answer, tmp_path: Path
) -> None:
    """A token in the middle of the usual answer is declared as a further end token."""
    if server is not newer_server:
        pytest.skip("covered by the newest release")
    plain = answer(PROMPT)
    end = plain.split()[1]
    tokens = {"77": {"content": end, "special": False}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": tokens}))
    (tmp_path / "generation_config.json").write_text(
        json.dumps({"eos_token_id": [0, 77], "do_sample": False})
    )
    with (
        OpenAIEndpoint(newer_server.url, tmp_path) as running,
        openai.OpenAI(base_url=running.url, api_key="none", max_retries=0) as opened,
    ):
        [choice] = completion(opened).choices
        assert (choice.text, choice.finish_reason) == (plain[: plain.index(end)], "stop")
        chunks = completion(opened, stream=True)
        assert text_of(chunks) == choice.text
        assert completion(opened, extra_body={"ignore_eos": True}).choices[0].text == plain
