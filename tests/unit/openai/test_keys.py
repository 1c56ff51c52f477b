"""Keys of requests: the first requests of public clients, and what is refused by name."""

import re
from pathlib import Path
from typing import Any

import pytest

from specdec.images.openai.models import Chat, Completion
from specdec.images.openai.neutral import CHAT as CHAT_KEYS
from specdec.images.openai.neutral import COMPLETION as COMPLETION_KEYS
from specdec.images.openai.settings import EndpointSettings
from unit.openai.fake_backend import FakeBackend, endpoint, pieces
from unit.openai.in_process import CHAT, COMPLETION, Json, client, events, post

STREAM: Json = {"stream": True, "stream_options": {"include_usage": True}}
TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "", "parameters": {"type": "object"}},
}
# The shapes of requests, as these clients send them.
GUIDELLM: Json = {
    "stream": True,
    "max_tokens": 8,
    "ignore_eos": True,
    "stop": None,
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
}
COMPLETIONS = {
    "guidellm": {**COMPLETION, **GUIDELLM},
    "vllm bench serve": {
        **COMPLETION,
        **STREAM,
        "max_tokens": 8,
        "temperature": 0.0,
        "logprobs": None,
        "repetition_penalty": 1.0,
        "ignore_eos": True,
    },
    "sglang bench": {
        **COMPLETION,
        "temperature": 0.0,
        "best_of": 1,
        "max_tokens": 8,
        "stream": True,
        "ignore_eos": True,
    },
    "lm-eval generate_until in batches": {
        **COMPLETION,
        "prompt": ["Q: a", "Q: b"],
        "max_tokens": 8,
        "temperature": 0,
    },
    "lm-eval generate_until": {
        **COMPLETION,
        "max_tokens": 8,
        "temperature": 0,
        "stop": ["\n\n", "Q:"],
        "seed": 1234,
    },
}
CHATS: dict[str, Json] = {
    "guidellm": {**CHAT, **GUIDELLM, "max_completion_tokens": 8},
    "langchain": {**CHAT, **STREAM, "n": 1, "temperature": 0.7, "logprobs": False},
    "vercel": {
        **CHAT,
        **STREAM,
        "tools": [TOOL],
        "tool_choice": "auto",
        "reasoning_effort": "low",
        "parallel_tool_calls": True,
    },
    "legal nulls": {
        **CHAT,
        "audio": None,
        "prediction": None,
        "functions": None,
        "function_call": None,
        "web_search_options": None,
        "include_metrics": None,
        "response_format": None,
        "modalities": None,
        "logit_bias": None,
        "stream_options": None,
        "top_logprobs": None,
    },
    "vllm's defaults": {
        **CHAT,
        "top_k": -1,
        "min_p": 0.0,
        "stop_token_ids": [],
        "skip_special_tokens": True,
        "spaces_between_special_tokens": True,
        "include_stop_str_in_output": False,
        "add_generation_prompt": True,
        "continue_final_message": False,
        "echo": False,
        "length_penalty": 1.0,
        "use_beam_search": False,
        "ignore_eos": False,
    },
}
PATHS = {"completions": COMPLETIONS, "chat/completions": CHATS}


@pytest.mark.parametrize(
    ("path", "name"), [(path, name) for path, bodies in PATHS.items() for name in bodies]
)
async def test_first_request_of_a_public_client_is_answered(path: str, name: str) -> None:
    served = endpoint(FakeBackend(pieces("a")), EndpointSettings("llama", tool_parser="hermes"))
    response = await post(served, path, PATHS[path][name])
    assert response.status_code == 200, response.text


async def test_health_is_at_the_path_of_other_servers() -> None:
    backend = FakeBackend()
    async with client(endpoint(backend)) as http:
        assert (await http.get("/health")).status_code == 200
        backend.is_ready = False
        assert (await http.get("/health")).status_code == 503


@pytest.mark.parametrize(
    ("path", "body"), [("completions", COMPLETION), ("chat/completions", CHAT)]
)
async def test_running_usage_is_in_each_chunk(path: str, body: Json) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    asked = {**body, "stream": True, "stream_options": options}
    chunks = events(await post(endpoint(FakeBackend(pieces("a", "b"))), path, asked))
    texts = [chunk for chunk in chunks if chunk["choices"] and _text(chunk)]
    assert [chunk["usage"]["completion_tokens"] for chunk in texts] == [1, 2]
    assert all(chunk["usage"]["prompt_tokens"] == 7 for chunk in texts)
    assert chunks[-1]["usage"]["total_tokens"] == 9


def _text(chunk: Json) -> str:
    [choice] = chunk["choices"]
    text: str = choice.get("text") or choice.get("delta", {}).get("content") or ""
    return text


@pytest.mark.parametrize("stream", [False, True])
async def test_echo_puts_the_prompt_before_the_answer(stream: bool) -> None:
    asked = {**COMPLETION, "echo": True, "stream": stream, "stop": ["f", "z"]}
    response = await post(endpoint(FakeBackend(pieces("a", "b"))), "completions", asked)
    parts = events(response) if stream else [response.json()]
    assert "".join(part["choices"][0]["text"] for part in parts) == "def fab"


async def test_end_token_is_ignored_on_request() -> None:
    backend = FakeBackend(pieces("a"))
    await post(endpoint(backend), "completions", {**COMPLETION, "ignore_eos": True})
    assert backend.requests[0].end_id == -1


@pytest.mark.parametrize(
    ("path", "fields", "message"),
    [
        ("completions", {"best_of": 2}, "best_of is 2, but this server gives one answer"),
        ("completions", {"suffix": "x"}, "suffix is x, but this model continues text"),
        (
            "completions",
            {"echo": True, "logprobs": 1},
            "echo is true, but this server has no log probabilities of prompts",
        ),
        ("completions", {"min_p": 0.1}, "min_p is 0.1, but"),
        ("completions", {"stop_token_ids": [5]}, "stop_token_ids is a list, but"),
        ("completions", {"logit_bias": {"5": 1}}, "no biases by token id; leave it out"),
        ("chat/completions", {"modalities": ["audio"]}, "answers are text; leave it out"),
        (
            "chat/completions",
            {"response_format": {"type": "json_object"}},
            "response_format is an object, but this endpoint does not restrict the form",
        ),
        ("chat/completions", {"continue_final_message": True}, "continue_final_message is true"),
        ("chat/completions", {"functions": [TOOL]}, "they are deprecated; use tools"),
        ("chat/completions", {"chat_template": "x"}, "a template is code"),
        ("chat/completions", {"skip_special_tokens": False}, "answers have no special tokens"),
        ("chat/completions", {"cache_salt": "x"}, "cache_salt is no parameter of this endpoint"),
        ("chat/completions", {"use_beam_search": 0}, "use_beam_search is 0, but"),
    ],
)
async def test_what_cannot_be_honoured_is_refused_by_name(
    path: str, fields: Json, message: str
) -> None:
    body: Any = COMPLETION if path == "completions" else CHAT
    response = await post(endpoint(FakeBackend(pieces("a"))), path, {**body, **fields})
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, next(iter(fields)))
    assert message in error["message"]


@pytest.mark.parametrize("keys", [COMPLETION_KEYS, CHAT_KEYS])
def test_each_reason_is_part_of_a_sentence(keys: Any) -> None:
    assert all(reason and not reason.endswith(".") for _, reason in keys.values())


def test_page_decides_about_each_key() -> None:
    page = Path(__file__).parents[3].joinpath("docs", "openai.md").read_text("utf-8")
    table = page.partition("### Keys")[2].partition("\n\nThe tests")[0]
    keys = {*Completion.model_fields, *Chat.model_fields, *COMPLETION_KEYS, *CHAT_KEYS}
    named = set(re.findall(r"`([a-z_.]+)`", table))
    assert keys - named == {"stream_options"}


async def test_keys_of_other_servers_in_tools_change_nothing() -> None:
    tool = {**TOOL, "cache_control": {"type": "ephemeral"}}
    function = {**TOOL["function"], "x-order": 1}  # type: ignore[dict-item]
    served = endpoint(FakeBackend(pieces("a")), EndpointSettings("llama", tool_parser="hermes"))
    for each in (tool, {**TOOL, "function": function}):
        response = await post(served, "chat/completions", {**CHAT, "tools": [each]})
        assert response.status_code == 200, response.text


async def test_long_key_is_not_echoed() -> None:
    body = {**COMPLETION, "k" * 100_000: 1}
    response = await post(endpoint(FakeBackend()), "completions", body)
    assert response.status_code == 400
    assert len(response.content) < 500
