"""What the OpenAI endpoint does in front of every model: cases for a class of tests.

A subclass runs them. Its module has the fixtures `server` (with the model), `model` (its name),
`answer` (a function that returns its text for a prompt), `endpoint` (with the file of `template`),
`client` (the official client of the endpoint) and `another` (an endpoint that a test may stop).
"""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from cluster.processes import DEADLINE_SECONDS, until
from specdec.client import BadRequestError, Client, Request
from specdec.client.connection import Connection, of_url
from specdec.client.dataset import Entry
from specdec.client.load import Settings, measure
from specdec.client.verification import Options, verify
from support.openai_endpoint import MODEL, OpenAIEndpoint
from support.triton_server import Server

PROMPT = "def read_lines(path):\n"
LENGTH = 24
TEMPLATE = (
    "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('unknown role ' ~ m.role) }}{% endif %}# {{ m.content }}\n{% endfor %}"
)
CHAT = [{"role": "system", "content": "code"}, {"role": "user", "content": "read lines"}]
CHAT_PROMPT = "# code\n# read lines\n"
Json = dict[str, Any]
Answer = Callable[[str], str]


def template(folder: Path) -> Path:
    """Write the chat template of the cases into a folder; return its file."""
    file = folder / "chat_template.jinja"
    file.write_text(TEMPLATE, "utf-8")
    return file


def completion(client: openai.OpenAI, *, stream: bool = False, **fields: Any) -> Any:
    """Return the whole answer to the prompt, or the list of its chunks with usage at the end."""
    create: Any = client.completions.create
    asked: Json = {"model": MODEL, "prompt": PROMPT, "max_tokens": LENGTH, **fields}
    if not stream:
        return create(**asked)
    return list(create(**asked, stream=True, stream_options={"include_usage": True}))


def text_of(chunks: list[Any]) -> str:
    """Return the text of a stream."""
    return "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)


class EndpointCases:
    """The cases."""

    def test_completion_equals_the_models_text(
        self, client: openai.OpenAI, answer: Answer
    ) -> None:
        whole = completion(client)
        assert whole.choices[0].text == answer(PROMPT)
        assert whole.choices[0].finish_reason == "length"
        assert whole.usage.completion_tokens == LENGTH
        assert whole.usage.prompt_tokens > 1

    def test_stream_gives_the_same_text_and_usage(self, client: openai.OpenAI) -> None:
        whole, chunks = completion(client), completion(client, stream=True)
        assert text_of(chunks) == whole.choices[0].text
        assert chunks[-2].choices[0].finish_reason == "length"
        assert chunks[-1].usage.total_tokens == whole.usage.total_tokens

    def test_chat_answers_the_rendered_conversation(
        self, client: openai.OpenAI, answer: Answer
    ) -> None:
        create: Any = client.chat.completions.create
        asked: Json = {"model": MODEL, "messages": CHAT, "max_completion_tokens": LENGTH}
        whole = create(**asked)
        assert whole.choices[0].message.content == answer(CHAT_PROMPT)
        deltas = [chunk.choices[0].delta.content or "" for chunk in create(**asked, stream=True)]
        assert "".join(deltas) == whole.choices[0].message.content

    def test_sampled_answers_differ_unless_they_have_a_seed(self, client: openai.OpenAI) -> None:
        texts = [completion(client, temperature=1.5).choices[0].text for _ in range(4)]
        seeded = [completion(client, temperature=1.5, seed=7).choices[0].text for _ in range(2)]
        assert len(set(texts)) > 1
        assert len(set(seeded)) == 1

    @pytest.mark.parametrize("stream", [False, True])
    def test_stop_string_is_cut(self, client: openai.OpenAI, answer: Answer, stream: bool) -> None:
        plain = answer(PROMPT)
        stop = plain[4:7]
        ended = completion(client, stop=[stop, "absent"], stream=stream)
        text = text_of(ended) if stream else ended.choices[0].text
        assert text == plain[: plain.index(stop)]

    def test_log_probabilities_are_those_of_the_text(self, client: openai.OpenAI) -> None:
        choice = completion(client, logprobs=0).choices[0]
        assert "".join(choice.logprobs.tokens) == choice.text
        assert len(choice.logprobs.token_logprobs) == LENGTH
        assert max(choice.logprobs.token_logprobs) <= 0

    @pytest.mark.parametrize(
        ("fields", "status", "code", "sentence"),
        [
            (
                {"prompt": "x " * 3000},
                *(400, "context_length_exceeded", "This model's maximum context length is"),
            ),
            ({"model": "other"}, 404, "model_not_found", "set it to tiny"),
            ({"prompt": "y" * (5 << 20)}, 413, "request_too_large", "send a shorter request"),
        ],
        ids=["context", "model", "body"],
    )
    @pytest.mark.parametrize("stream", [False, True])
    def test_refusal_is_an_error_of_the_client(
        self,
        client: openai.OpenAI,
        fields: Json,
        status: int,
        code: str | None,
        sentence: str,
        stream: bool,
    ) -> None:
        with pytest.raises(openai.APIStatusError) as caught:
            completion(client, stream=stream, **fields)
        assert (caught.value.status_code, caught.value.code) == (status, code)
        assert sentence in caught.value.message
        assert "text_input" not in caught.value.message
        assert "Traceback" not in caught.value.message

    def test_template_refuses_a_role(self, client: openai.OpenAI) -> None:
        create: Any = client.chat.completions.create
        messages = [*CHAT, {"role": "tool", "content": "5", "tool_call_id": "c"}]
        with pytest.raises(openai.BadRequestError, match=r"unknown role tool"):
            create(model=MODEL, messages=messages)

    def test_models_health_and_metrics(
        self, client: openai.OpenAI, endpoint: OpenAIEndpoint
    ) -> None:
        assert [model.id for model in client.models.list()] == [MODEL]
        assert endpoint.get("/health/live") == "live"
        completion(client, max_tokens=1)
        count = re.compile(r'requests_total\{path="/v1/completions",status="200"\} [1-9]')
        until(lambda: bool(count.search(endpoint.get("/metrics"))), lambda: "no count")
        idle = "specdec_openai_requests_in_flight 0.0"
        until(lambda: idle in endpoint.get("/metrics"), lambda: "a request goes on")

    @pytest.mark.parametrize(
        ("size", "sentence"),
        [(60_000, "no JSON that can be read"), (200_000, "more than 65536 JSON values")],
    )
    def test_hostile_bodies_do_not_reach_the_server(
        self, client: openai.OpenAI, size: int, sentence: str
    ) -> None:
        with pytest.raises(openai.BadRequestError, match=sentence):
            client.post("/completions", cast_to=object, content=b"[" * size)
        after = completion(client, max_tokens=1)
        assert json.loads(after.model_dump_json())["object"] == "text_completion"

    @pytest.mark.parametrize("stream", [False, True])
    def test_our_client_speaks_to_the_endpoint(
        self, endpoint: OpenAIEndpoint, answer: Answer, stream: bool
    ) -> None:
        request = Request(PROMPT, "", max_tokens=LENGTH, stream=stream, token_counts=True)
        chat = Request("read lines", MODEL, max_tokens=LENGTH, chat=True, stream=stream)
        with Client(endpoint.url) as ours:
            whole, talk = ours.ask(request), ours.ask(chat)
        assert whole.text == answer(PROMPT)
        assert int(whole.optional_outputs["num_output_tokens"].sum()) == LENGTH
        assert talk.text == answer("# read lines\n")

    def test_our_client_names_the_models_of_the_endpoint(self, endpoint: OpenAIEndpoint) -> None:
        with Client(endpoint.url) as ours, pytest.raises(BadRequestError, match=f"of: {MODEL}"):
            ours.ask(Request(PROMPT, "other"))

    def test_verification_compares_the_endpoint_with_its_server(
        self, endpoint: OpenAIEndpoint, server: Server, model: str
    ) -> None:
        options = Options(model="", max_tokens=LENGTH, baseline_model=model)
        baseline = Connection(server.url)
        compared = verify([Entry(PROMPT)], options, of_url(endpoint.url), baseline=baseline)
        result = asyncio.run(compared)
        assert (result.prompts, result.matched, result.failures) == (1, 1, ())

    def test_benchmark_compares_the_endpoint_with_its_server(
        self, endpoint: OpenAIEndpoint, server: Server, model: str
    ) -> None:
        baseline = Connection(f"127.0.0.1:{server.http_port}")
        settings = Settings(
            model="", requests=2, output_tokens=12, resamples=100, baseline_model=model
        )
        report = asyncio.run(measure(of_url(endpoint.url), settings, baseline=baseline))
        [level] = report.levels
        [arm] = level.speculative
        assert (report.errors, report.model, report.baseline_model) == (0, MODEL, model)
        assert arm.output_tokens_counted
        assert arm.speedup_percent is not None

    def test_sigterm_waits_for_a_stream(self, another: OpenAIEndpoint) -> None:
        with openai.OpenAI(base_url=another.url, api_key="none", max_retries=0) as opened:
            create: Any = opened.completions.create
            stream = create(model=MODEL, prompt=PROMPT, max_tokens=200, stream=True)
            first = next(iter(stream))
            another.process.terminate()
            rest = list(stream)
            assert another.process.wait(DEADLINE_SECONDS) == 0
        assert first.choices[0].finish_reason is None
        assert rest[-1].choices[0].finish_reason == "length"
