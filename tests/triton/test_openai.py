"""The official OpenAI client, through the endpoint, to real servers of every release."""

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest

from cluster.processes import DEADLINE_SECONDS, until
from specdec.client import BadRequestError, Client, Connection, Request
from specdec.client.connection import of_url
from specdec.client.dataset import Entry
from specdec.client.load import Settings, measure
from specdec.client.verification import Options, verify
from specdec.triton.model_names import BLS
from specdec.triton.repository import RepositoryPlan
from support.openai_endpoint import MODEL, OpenAIEndpoint
from support.shipped_pair import PAIR
from support.triton_server import Server
from triton.conftest import Serve

PROMPT = "def read_lines(path):\n"
LENGTH = 24
TEMPLATE = (
    "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('unknown role ' ~ m.role) }}{% endif %}# {{ m.content }}\n{% endfor %}"
)
CHAT = [{"role": "system", "content": "code"}, {"role": "user", "content": "read lines"}]
CHAT_PROMPT = "# code\n# read lines\n"
Json = dict[str, Any]


@pytest.fixture(scope="module", params=["older_server", "server", "newer_server"])
def server(request: pytest.FixtureRequest) -> Server:
    """Return a server of each release: 0.18.0 (without streaming), 0.19.0 and 1.2.1."""
    release: Server = request.getfixturevalue(request.param)
    return release


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("template") / "chat_template.jinja"
    file.write_text(TEMPLATE, "utf-8")
    return file


@pytest.fixture(scope="module")
def endpoint(server: Server, template: Path) -> Iterator[OpenAIEndpoint]:
    options = ["--chat-template", str(template)]
    with OpenAIEndpoint(server.url, PAIR / "target", options) as running:
        yield running


@pytest.fixture(scope="module")
def client(endpoint: OpenAIEndpoint) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=endpoint.url, api_key="none", max_retries=0) as opened:
        yield opened


def expected(server: Server, prompt: str, **fields: Any) -> str:
    with Client(server.url) as direct:
        request = Request(prompt, max_tokens=LENGTH, draft_tokens=0, stream=False, **fields)
        return direct.ask(request).text


def streamed(client: openai.OpenAI, **fields: Any) -> tuple[str, list[Any]]:
    options: Json = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(
        client.completions.create(
            model=MODEL, prompt=PROMPT, max_tokens=LENGTH, **options, **fields
        )
    )
    return "".join(c.choices[0].text for c in chunks if c.choices), chunks


def test_completion_equals_the_target_alone(server: Server, client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=LENGTH)
    assert answer.choices[0].text == expected(server, PROMPT)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == LENGTH
    assert answer.usage.prompt_tokens > 1


def test_stream_gives_the_same_text_and_usage(server: Server, client: openai.OpenAI) -> None:
    whole = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=LENGTH)
    text, chunks = streamed(client)
    assert text == whole.choices[0].text
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens


def test_chat_answers_the_rendered_conversation(server: Server, client: openai.OpenAI) -> None:
    create: Any = client.chat.completions.create
    answer = create(model=MODEL, messages=CHAT, max_completion_tokens=LENGTH)
    assert answer.choices[0].message.content == expected(server, CHAT_PROMPT)
    chunks = list(create(model=MODEL, messages=CHAT, max_completion_tokens=LENGTH, stream=True))
    deltas = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert "".join(deltas) == answer.choices[0].message.content


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


def test_stop_string_is_cut(server: Server, client: openai.OpenAI) -> None:
    plain = expected(server, PROMPT)
    stop = plain[4:7]
    for text in (
        client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=LENGTH, stop=stop)
        .choices[0]
        .text,
        streamed(client, stop=[stop, "absent"])[0],
    ):
        assert text == plain[: plain.index(stop)]


def test_log_probabilities_are_those_of_the_text(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=LENGTH, logprobs=0)
    values = answer.choices[0].logprobs
    assert values is not None
    assert values.tokens is not None
    assert values.token_logprobs is not None
    assert "".join(values.tokens) == answer.choices[0].text
    assert len(values.token_logprobs) == LENGTH
    assert max(values.token_logprobs) <= 0


@pytest.mark.parametrize(
    ("fields", "status", "code", "sentence"),
    [
        ({"prompt": "x " * 3000}, 400, "context_length_exceeded", "limit of"),
        ({"extra_body": {"num_draft_tokens": 99}}, 400, None, "num_draft_tokens is 99"),
        ({"model": "other"}, 404, "model_not_found", "set it to tiny"),
        ({"prompt": "y" * (5 << 20)}, 413, "request_too_large", "send a shorter request"),
    ],
    ids=["context", "draft", "model", "body"],
)
@pytest.mark.parametrize("stream", [False, True])
def test_refusal_is_an_error_of_the_client(
    client: openai.OpenAI, fields: Json, status: int, code: str | None, sentence: str, stream: bool
) -> None:
    create: Any = client.completions.create
    with pytest.raises(openai.APIStatusError) as caught:
        create(**{"model": MODEL, "prompt": PROMPT, "stream": stream, **fields})
    assert (caught.value.status_code, caught.value.code) == (status, code)
    assert sentence in caught.value.message
    assert "Traceback" not in caught.value.message


def test_template_refuses_a_role(client: openai.OpenAI) -> None:
    create: Any = client.chat.completions.create
    messages = [*CHAT, {"role": "tool", "content": "5", "tool_call_id": "c"}]
    with pytest.raises(openai.BadRequestError, match=r"unknown role tool"):
        create(model=MODEL, messages=messages)


def test_models_health_and_metrics(client: openai.OpenAI, endpoint: OpenAIEndpoint) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert endpoint.get("/health/live") == "live"
    page = endpoint.get("/metrics")
    assert re.search(r'requests_total\{path="/v1/completions",status="200"\} [1-9]', page)
    assert "specdec_openai_requests_in_flight 0.0" in page


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


def test_sigterm_waits_for_a_stream(newer_server: Server) -> None:
    with (
        OpenAIEndpoint(newer_server.url, PAIR / "target") as running,
        openai.OpenAI(base_url=running.url, api_key="none", max_retries=0) as opened,
    ):
        stream = opened.completions.create(model=MODEL, prompt=PROMPT, max_tokens=200, stream=True)
        first = next(iter(stream))
        running.process.terminate()
        rest = list(stream)
        assert running.process.wait(DEADLINE_SECONDS) == 0
    assert first.choices[0].finish_reason is None
    assert rest[-1].choices[0].finish_reason == "length"


def test_unusable_setting_is_one_sentence(newer_server: Server, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jinja"
    broken.write_text("{% for %}", "utf-8")
    running = OpenAIEndpoint(newer_server.url, tmp_path, ["--chat-template", str(broken)])
    with pytest.raises(RuntimeError, match=r"ended with 2"):
        running.__enter__()


@pytest.mark.parametrize(
    ("size", "sentence"),
    [(60_000, "no JSON that can be read"), (200_000, "more than 65536 JSON values")],
)
def test_hostile_bodies_do_not_reach_the_server(
    newer_server: Server,
    server: Server,
    endpoint: OpenAIEndpoint,
    client: openai.OpenAI,
    size: int,
    sentence: str,
) -> None:
    if server is not newer_server:
        pytest.skip("covered by the newest release")
    with pytest.raises(openai.BadRequestError, match=sentence):
        client.post("/completions", cast_to=object, content=b"[" * size)
    answer = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=1)
    assert json.loads(answer.model_dump_json())["object"] == "text_completion"


@pytest.mark.parametrize("stream", [False, True])
def test_our_client_speaks_to_the_endpoint(
    server: Server, endpoint: OpenAIEndpoint, stream: bool
) -> None:
    request = Request(PROMPT, "", max_tokens=LENGTH, stream=stream, token_counts=True)
    with Client(endpoint.url) as ours:
        answer = ours.ask(request)
        chat = ours.ask(Request("read lines", MODEL, max_tokens=LENGTH, chat=True, stream=stream))
    assert answer.text == expected(server, PROMPT)
    assert int(answer.optional_outputs["num_output_tokens"].sum()) == LENGTH
    with Client(server.url) as direct:
        drafts = direct.ask(Request(PROMPT, max_tokens=LENGTH, stream=False)).counts
    # The oldest release counts no draft tokens.
    assert answer.counts == drafts
    assert chat.text == expected(server, "# read lines\n")


def test_our_client_names_the_models_of_the_endpoint(endpoint: OpenAIEndpoint) -> None:
    with Client(endpoint.url) as ours, pytest.raises(BadRequestError, match=f"one of: {MODEL}"):
        ours.ask(Request(PROMPT, "other"))


def test_the_benchmark_compares_the_endpoint_with_a_service(
    server: Server, endpoint: OpenAIEndpoint
) -> None:
    settings = Settings(model="", requests=2, output_tokens=12, resamples=100)
    baseline = Connection(f"127.0.0.1:{server.http_port}")
    report = asyncio.run(measure(of_url(endpoint.url), settings, baseline=baseline))
    [level] = report.levels
    [arm] = level.speculative
    assert (report.errors, report.model, report.baseline_model) == (0, MODEL, BLS)
    assert arm.output_tokens_counted
    assert arm.speedup_percent is not None
    again = replace(settings, baseline_model="")
    with pytest.raises(BadRequestError, match="the measured service itself"):
        asyncio.run(measure(of_url(endpoint.url), again, baseline=of_url(endpoint.url)))


def test_verification_compares_the_endpoint_with_a_service(
    server: Server, endpoint: OpenAIEndpoint
) -> None:
    options = Options(model="", max_tokens=LENGTH)
    baseline = Connection(server.url)
    compared = verify([Entry(PROMPT)], options, of_url(endpoint.url), baseline=baseline)
    result = asyncio.run(compared)
    assert (result.prompts, result.matched, result.failures) == (1, 1, ())
