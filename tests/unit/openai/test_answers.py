"""Answers to completions and chats with a scripted server: whole, streamed, and errors."""

import json
from dataclasses import replace

import pytest

from specdec.images.openai.assembly import Piece
from specdec.images.openai.errors import ApiError, overloaded
from specdec.images.openai.limits import Limits
from specdec.images.openai.settings import EndpointSettings
from specdec.images.openai.triton import refused
from unit.openai.fake_backend import OLDER, SERVED, FakeBackend, endpoint, pieces
from unit.openai.in_process import CHAT, COMPLETION, Json, events, post

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


async def test_completion_is_one_body() -> None:
    backend = FakeBackend(pieces("Hel", "lo"))
    response = await post(endpoint(backend), "completions", {**COMPLETION, "max_tokens": 5})
    body = response.json()
    assert response.status_code == 200
    assert body["object"] == "text_completion"
    assert body["choices"] == [
        {"index": 0, "logprobs": None, "finish_reason": "stop", "text": "Hello"}
    ]
    assert body["usage"]["total_tokens"] == 7 + 2
    assert body["usage"]["completion_tokens_details"] == {
        "accepted_prediction_tokens": 2,
        "rejected_prediction_tokens": 2,
    }
    assert "metrics" not in body
    (request,) = backend.requests
    assert (request.prompt, request.max_tokens, request.stream) == ("def f", 5, False)


async def test_answer_at_the_limit_ends_by_length() -> None:
    backend = FakeBackend(pieces("a", "b"))
    response = await post(endpoint(backend), "completions", {**COMPLETION, "max_tokens": 2})
    assert response.json()["choices"][0]["finish_reason"] == "length"


async def test_completion_streams_a_piece_for_each_of_the_server() -> None:
    body = {**COMPLETION, "stream": True}
    first, second, last = events(
        await post(endpoint(FakeBackend(pieces('"Hä', "😀\n"))), "completions", body)
    )
    assert [e["choices"][0]["text"] for e in (first, second, last)] == ['"Hä', "😀\n", ""]
    assert [e["choices"][0]["finish_reason"] for e in (first, second, last)] == [
        None,
        None,
        "stop",
    ]
    assert first["id"] == last["id"]
    assert "usage" not in first


async def test_chat_streams_role_content_and_usage() -> None:
    body = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    backend = FakeBackend(pieces("a", "b"))
    result = events(await post(endpoint(backend), "chat/completions", body))
    deltas = [event["choices"][0]["delta"] for event in result[:-1]]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "a"}, {"content": "b"}, {}]
    assert [event["usage"] for event in result[:-1]] == [None] * 4
    assert result[-1]["choices"] == []
    assert result[-1]["usage"]["prompt_tokens"] == 7
    assert backend.requests[0].prompt == "<user>hi<assistant>"
    # A chat without a limit may use the whole sequence.
    assert backend.requests[0].max_tokens == SERVED.max_seq_len - 1


@pytest.mark.parametrize("stream", [False, True])
async def test_acceptance_is_reported_when_requested(stream: bool) -> None:
    body = {**COMPLETION, "stream": stream, "include_metrics": True}
    response = await post(endpoint(FakeBackend(pieces("a", "b"))), "completions", body)
    answer = events(response)[-1] if stream else response.json()
    assert answer["metrics"]["speculative_decoding"] == {
        "draft_acceptance_rate": 0.5,
        "num_accepted_draft_tokens": 2,
        "num_draft_tokens": 4,
        "acceptance_histogram": [0, 2],
        "num_spec_steps": 2,
        "num_spec_tokens": 4,
        "mean_acceptance_length": 2.0,
    }


@pytest.mark.parametrize("stream", [False, True])
async def test_stop_string_ends_the_text_and_is_no_part_of_it(stream: bool) -> None:
    body = {**COMPLETION, "stream": stream, "stop": ["END"]}
    backend = FakeBackend(pieces("one E", "ND two"))
    response = await post(endpoint(backend), "completions", body)
    answers = events(response) if stream else [response.json()]
    assert "".join(a["choices"][0]["text"] for a in answers) == "one "
    assert answers[-1]["choices"][0]["finish_reason"] == "stop"
    assert backend.requests[0].stop_words == ("END",)


async def test_ensemble_is_cancelled_at_a_stop_string() -> None:
    declared = replace(SERVED.declared, inputs=SERVED.declared.inputs - {"num_draft_tokens"})
    ensemble = replace(SERVED, declared=declared)
    backend = FakeBackend([*pieces("a.b"), ApiError("read after the end")], ensemble)
    served = endpoint(backend, EndpointSettings("llama", model="ensemble"))
    response = await post(served, "completions", {**COMPLETION, "stop": "."})
    assert response.json()["choices"][0]["text"] == "a"
    assert backend.cancelled.is_set()


@pytest.mark.parametrize("stream", [False, True])
async def test_reasoning_and_tool_calls_are_split(stream: bool) -> None:
    served = endpoint(
        FakeBackend(
            pieces(
                "<think>hm</th",
                'ink>Go.<tool_call>{"name": "weather", ',
                '"arguments": {}}</',
                "tool_call>",
            )
        ),
        EndpointSettings("llama", tool_parser="hermes", reasoning_parser="deepseek_r1"),
    )  # fmt: skip
    response = await post(served, "chat/completions", {**CHAT, "tools": [TOOL], "stream": stream})
    if stream:
        result = events(response)
        deltas = [event["choices"][0]["delta"] for event in result]
        (calls,) = [delta["tool_calls"] for delta in deltas if "tool_calls" in delta]
        assert calls[0].pop("index") == 0
        reasoning = "".join(delta.get("reasoning_content", "") for delta in deltas)
        content = "".join(delta.get("content") or "" for delta in deltas)
        choice = result[-1]["choices"][0]
    else:
        choice = response.json()["choices"][0]
        message = choice["message"]
        calls, content = message["tool_calls"], message["content"]
        reasoning = message["reasoning_content"]
    assert (reasoning, content) == ("hm", "Go.")
    assert calls[0]["function"] == {"name": "weather", "arguments": "{}"}
    assert choice["finish_reason"] == "tool_calls"


async def test_text_of_a_call_is_content_without_tools() -> None:
    served = endpoint(
        FakeBackend(pieces("<tool_call>{}")), EndpointSettings("llama", tool_parser="hermes")
    )
    response = await post(served, "chat/completions", CHAT)
    message = response.json()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "<tool_call>{}", "refusal": None}


@pytest.mark.parametrize("stream", [False, True])
async def test_log_probabilities_belong_to_the_text_of_their_piece(stream: bool) -> None:
    script = pieces("ab", "c")
    script[0] = replace(script[0], tokens=2, log_probs=(-1.0, float("-inf")))  # type: ignore[type-var]
    body = {**CHAT, "logprobs": True, "stream": stream}
    backend = FakeBackend(script)
    response = await post(endpoint(backend), "chat/completions", body)
    choices = [a["choices"][0] for a in (events(response) if stream else [response.json()])]
    entries = [e for c in choices if c["logprobs"] for e in c["logprobs"]["content"]]
    assert [(e["token"], e["logprob"]) for e in entries] == [
        ("ab", -1.0),
        ("", -9999.0),
        ("c", -0.5),
    ]
    # The request streams: in a single response, all text would belong to the first token.
    assert backend.requests[0].stream


async def test_older_release_counts_by_probabilities_and_preprocessing() -> None:
    script = [replace(piece, prompt_tokens=None) for piece in pieces("a", "b")]  # type: ignore[type-var]
    backend = FakeBackend(script, OLDER)
    response = await post(endpoint(backend), "completions", {**COMPLETION, "max_tokens": 2})
    body = response.json()
    assert backend.requests[0].log_probs
    assert body["usage"]["prompt_tokens"] == len("def f")
    assert body["choices"][0] == {
        "index": 0, "logprobs": None, "finish_reason": "length", "text": "ab",
    }  # fmt: skip


async def test_error_before_the_first_piece_has_its_status() -> None:
    backend = FakeBackend([overloaded("the queue is full: try again later")])
    response = await post(endpoint(backend), "completions", {**COMPLETION, "stream": True})
    assert response.status_code == 429
    assert response.headers["retry-after"] == "1"
    assert response.json()["error"] == {
        "message": "the queue is full: try again later",
        "type": "rate_limit_error",
        "param": None,
        "code": "rate_limit_exceeded",
    }


async def test_later_error_ends_the_stream_as_an_event() -> None:
    backend = FakeBackend([*pieces("a"), ApiError("it broke", status=500, kind="server_error")])
    response = await post(endpoint(backend), "completions", {**COMPLETION, "stream": True})
    *_, last, end = response.text.split("\n\n")
    assert json.loads(last.removeprefix("data: "))["error"]["message"] == "it broke"
    assert end == ""


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [("completions", COMPLETION, "prompt"), ("chat/completions", CHAT, "messages")],
)
async def test_prompt_that_is_too_long_names_its_parameter(
    path: str, body: Json, param: str
) -> None:
    response = await post(
        endpoint(FakeBackend([refused("text_input has 9 bytes for a prompt", 9)])), path, body
    )
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, param)
    # LiteLLM and LangChain recognize the error by this wording.
    assert (
        "maximum context length is 9 tokens. However, the prompt is too long." in error["message"]
    )


@pytest.mark.parametrize("stream", [False, True])
async def test_every_end_token_ends_an_answer(stream: bool) -> None:
    """The server leaves out the texts of special tokens only."""
    backend = FakeBackend(pieces("a", "b<e", "ot>c"))
    settings = EndpointSettings("llama", ends={"<|endoftext|>": True, "<eot>": False})
    asked = {**CHAT, "stop": ["z"], "stream": stream}
    response = await post(endpoint(backend, settings), "chat/completions", asked)
    assert backend.requests[0].stop_words == ("z", "<|endoftext|>", "<eot>")
    if not stream:
        [choice] = response.json()["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("ab", "stop")
    await post(endpoint(backend, settings), "chat/completions", {**asked, "ignore_eos": True})
    assert backend.requests[1].stop_words == ("z",)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (Piece("", 1, 7, reason="stop"), "tool_calls"),
        (Piece("<tool_call>{", 1, 7, reason="length"), "length"),
    ],
)
async def test_answer_that_the_limit_cut_is_not_announced_as_calls(
    stream: bool, last: Piece, reason: str
) -> None:
    text = '<tool_call>{"name": "weather", "arguments": {}}</tool_call>'
    settings = EndpointSettings("llama", tool_parser="hermes")
    asked = {**CHAT, "tools": [TOOL], "stream": stream}
    response = await post(
        endpoint(FakeBackend([*pieces(text), last]), settings), "chat/completions", asked
    )
    choices = [part["choices"][0] for part in (events(response) if stream else [response.json()])]
    assert choices[-1]["finish_reason"] == reason
    messages = [choice.get("delta") or choice.get("message") or {} for choice in choices]
    assert [len(message["tool_calls"]) for message in messages if "tool_calls" in message] == [1]


async def test_each_prompt_of_a_list_has_a_choice() -> None:
    backend = FakeBackend(pieces("a", "b"))
    asked = {**COMPLETION, "prompt": ["x", "y", "z"], "echo": True, "include_metrics": True}
    body = (await post(endpoint(backend), "completions", asked)).json()
    assert [(c["index"], c["text"]) for c in body["choices"]] == [
        (0, "xab"),
        (1, "yab"),
        (2, "zab"),
    ]
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (3 * 7, 3 * 2)
    metrics = body["metrics"]["speculative_decoding"]
    assert (metrics["num_draft_tokens"], metrics["acceptance_histogram"]) == (3 * 4, [0, 3 * 2])


async def test_each_prompt_of_a_list_takes_a_place() -> None:
    backend = FakeBackend(pieces("a"))
    served = endpoint(backend, EndpointSettings("llama", limits=Limits(in_flight=2)))
    for prompts, status in ((["x"] * 3, 400), (["x"] * 2, 200), (["x"] * 2, 200)):
        response = await post(served, "completions", {**COMPLETION, "prompt": prompts})
        assert response.status_code == status
    assert served._intake.in_flight == 0


async def test_error_of_one_prompt_ends_the_others() -> None:
    backend = FakeBackend([*pieces("a"), ApiError("it broke", status=500, kind="server_error")])
    response = await post(endpoint(backend), "completions", {**COMPLETION, "prompt": ["x", "y"]})
    assert (response.status_code, response.json()["error"]["message"]) == (500, "it broke")
