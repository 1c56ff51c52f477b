"""Request bodies: which errors they get, and which tensors reach the server."""

import json
from typing import Any

import pytest

from specdec.images.openai.body import parse
from specdec.images.openai.errors import ApiError
from specdec.images.openai.models import Chat, Common, Completion
from specdec.images.openai.request import Task, prompts_of, task
from specdec.images.openai.settings import EndpointSettings
from unit.openai.fake_backend import SERVED

SETTINGS = EndpointSettings("llama")
MESSAGES = [{"role": "user", "content": "hi"}]
Json = dict[str, Any]


def completion(**fields: Any) -> Task:
    body = parse(json.dumps({"model": "llama", "prompt": "x", **fields}).encode(), Completion)
    [prompt] = prompts_of(body, 2)
    return task(body, prompt, SERVED, SETTINGS)


def chat(settings: EndpointSettings = SETTINGS, **fields: Any) -> Task:
    body = parse(json.dumps({"model": "llama", "messages": MESSAGES, **fields}).encode(), Chat)
    return task(body, "prompt", SERVED, settings)


@pytest.mark.parametrize(
    ("fields", "param", "sentence"),
    [
        ({"model": "other"}, "model", "model is other, which is not served here; set it to llama"),
        ({"n": 2}, "n", "n is 2, but this server gives one answer; set it to 1"),
        ({"prompt": ["a"] * 3}, "prompt", "prompt has 3 items; send 1 to 2"),
        ({"prompt": []}, "prompt", "prompt has 0 items; send 1 to 2"),
        ({"prompt": ["a", "b"], "stream": True}, "prompt", "prompt has 2 items; a stream has one"),
        ({"prompt": [5] * 9}, "prompt", "prompt has token ids; send text"),
        ({"prompt": [[1, 2]]}, "prompt", "prompt has token ids; send text"),
        ({"prompt": ""}, "prompt", "prompt is empty; send at least one character"),
        ({"prompt": None}, "prompt", "prompt"),
        ({"temperature": "hot"}, "temperature", "temperature is hot, but it should be a valid"),
        ({"temperature": "0.5"}, "temperature", "temperature is 0.5, but it should be a valid"),
        ({"temperature": True}, "temperature", "temperature is true, but it should be a valid"),
        ({"temperature": 3}, "temperature", "it should be less than or equal to 2"),
        ({"top_p": -1}, "top_p", "top_p is -1"),
        ({"max_tokens": 1.5}, "max_tokens", "max_tokens is 1.5"),
        (
            {"max_tokens": 512},
            "max_tokens",
            "context length is 512 tokens. However, max_tokens is 512; set it below 512",
        ),
        ({"stop": ["a"] * 65}, "stop", "stop has 65 strings, more than the limit of 64"),
        ({"stop": ["a", ""]}, "stop", "stop.1 is '', but"),
        ({"logprobs": 5}, "logprobs", "the probabilities of the chosen tokens only"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "it needs stream"),
        ({"num_draft_tokens": -1}, "num_draft_tokens", "num_draft_tokens is -1"),
        (
            {"frequency": 1},
            "frequency",
            "frequency is no parameter of this endpoint; leave it out",
        ),
    ],
)
def test_bad_value_of_a_completion_is_one_sentence(
    fields: Json, param: str, sentence: str
) -> None:
    with pytest.raises(ApiError) as caught:
        completion(**fields)
    assert sentence in str(caught.value)
    assert caught.value.param == param
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role is robot"),
        ({"messages": [{"content": "x"}]}, "messages.0.role is missing; send it"),
        (
            {"messages": [{"role": "user", "content": [{"text": "x"}]}]},
            "content.0.type is missing",
        ),
        ({"messages": [5]}, "messages.0 is 5, but it should be a valid object"),
        ({"tool_choice": "required"}, "the model itself decides about tool calls"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "no parser of tool calls"),
        ({"top_logprobs": 2}, "top_logprobs needs logprobs"),
        ({"logprobs": True, "top_logprobs": 2}, "the probabilities of the chosen tokens only"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "send one of them"),
    ],
)
def test_bad_value_of_a_chat_is_one_sentence(fields: Json, sentence: str) -> None:
    with pytest.raises(ApiError) as caught:
        chat(**fields)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"nul", b'"text"', b"\xff{}", b"[" * 200_000, b'{"a":' * 5000, b"1" * 100_000],
)
@pytest.mark.parametrize("model", [Completion, Chat])
def test_body_that_is_no_object_is_one_sentence(body: bytes, model: type[Common]) -> None:
    with pytest.raises(ApiError) as caught:
        parse(body, model)
    assert caught.value.status == 400
    assert len(str(caught.value)) < 300


def test_fields_reach_the_inputs_of_the_model() -> None:
    made = completion(
        temperature=0.5, seed=-1, stop=["a", "b"], num_draft_tokens=3, max_tokens=4, user="me"
    )
    tensors = made.request.tensors(SERVED.declared.inputs)
    assert tensors["seed"].plain == 2**64 - 1
    assert tensors["stop_words"].plain == ["a", "b"]
    assert tensors["num_draft_tokens"].plain == 3
    assert tensors["max_tokens"].plain == 4
    assert tensors["temperature"].plain == 0.5
    # Engines decode greedily if only a temperature is set, so top_p is set too.
    assert tensors["top_p"].plain == 1.0


def test_defaults_of_both_limits() -> None:
    assert completion().max_tokens == 16
    assert chat().max_tokens == 511
    assert chat(max_completion_tokens=3).max_tokens == 3


def test_tools_are_ignored_without_choice() -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    assert not chat(tools=[tool], tool_choice="none").tools
    assert chat(EndpointSettings("llama", tool_parser="hermes"), tools=[tool]).tools
