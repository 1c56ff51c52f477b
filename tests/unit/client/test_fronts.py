"""How the clients select a front end and read its answers, without a server."""

import json

import numpy as np
import pytest

from specdec.client.connection import of_url
from specdec.client.errors import BadRequestError, RefusedError
from specdec.client.fronts import openai
from specdec.client.fronts.choice import front
from specdec.client.fronts.llm_api import LlmApi, TextSoFar
from specdec.client.fronts.openai import OpenAIFront
from specdec.client.fronts.text_model import TextModel
from specdec.client.request import Request
from specdec.client.sampling import strings
from specdec.client.transport import Model


def model(*inputs: str) -> Model:
    return Model(frozenset(inputs), frozenset({"text_output"}), streams=True)


def test_declared_inputs_select_the_front() -> None:
    assert isinstance(front(model("text_input", "max_tokens"), "m", "u"), TextModel)
    llm_api = model("text_input", "sampling_param_max_tokens")
    assert isinstance(front(llm_api, "m", "u"), LlmApi)
    assert isinstance(front(model("prompt"), "m", "u"), OpenAIFront)
    with pytest.raises(BadRequestError, match="model m at u has no input text_input"):
        front(model("input_ids"), "m", "u")


def test_whole_texts_become_new_text_and_characters_stay_complete() -> None:
    reader = TextSoFar()
    texts = ("a", "ab\ufffd", "ab\u00e9", "ab\u00e9\ufffd")
    parts = [reader.read({"text_output": strings((text,))}) for text in texts]
    assert [part.text for part in parts if part] == ["a", "b", "\u00e9", ""]
    rest = reader.end()
    assert rest is not None
    assert rest.text == "\ufffd"
    assert reader.end() is None


def test_the_llm_api_gets_its_own_names() -> None:
    declared = model("text_input", "streaming", "sampling_param_max_tokens", "sampling_param_stop")
    tensors = LlmApi(declared).tensors(Request("x", "m", max_tokens=3, stop_words=("y",)))
    assert sorted(tensors) == sorted(declared.inputs)
    with pytest.raises(BadRequestError, match="has no input temperature"):
        LlmApi(declared).tensors(Request("x", "m", temperature=1.0))
    with pytest.raises(BadRequestError, match="leave out --chat"):
        LlmApi(declared).tensors(Request("x", "m", chat=True))


@pytest.mark.parametrize(
    ("url", "where", "path", "tls"),
    [
        ("localhost:8001", "localhost:8001", "", False),
        ("http://host/v1/", "host:80", "/v1", False),
        ("https://host/team/v1", "host:443", "/team/v1", True),
        ("http://[::1]:9000/v1", "[::1]:9000", "/v1", False),
    ],
)
def test_the_url_selects_the_protocol(url: str, where: str, path: str, tls: bool) -> None:
    connection = of_url(url)
    assert (connection.url, connection.path, connection.tls) == (where, path, tls)


@pytest.mark.parametrize(
    "url", ["http://host:8000", "ftp://host/v1", "http:///v1", "http://h:x/v1", "http://h/v1?a=b"]
)
def test_a_wrong_url_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(BadRequestError, match="http://localhost:9000/v1"):
        of_url(url)


def test_a_chat_request_has_a_message_and_asks_for_usage() -> None:
    declared = Model(openai._INPUTS, frozenset({"text_output"}), streams=True)
    tensors = OpenAIFront(declared).tensors(Request("hello", "m", chat=True))
    assert openai.operation(tensors) == "chat/completions"
    body = json.loads(openai.body("m", tensors))
    assert body["messages"] == [{"role": "user", "content": "hello"}]
    assert body["stream_options"] == {"include_usage": True}
    assert "include_metrics" not in body
    with pytest.raises(BadRequestError, match="no input num_draft_tokens"):
        OpenAIFront(declared).tensors(Request("hello", "m", draft_tokens=2))


def test_events_of_completions_and_chats_become_outputs() -> None:
    event = openai.event_of(
        b'data: {"choices":[{"delta":{"content":"hi"}}],"usage":{"completion_tokens":2},"metrics":'
        b'{"speculative_decoding":{"num_draft_tokens":4,"num_accepted_draft_tokens":1}}}',
        "u",
    )
    assert event is not None
    outputs = openai.values(event)
    assert outputs["text_output"][0] == b"hi"
    assert np.concatenate(
        [outputs["num_output_tokens"], outputs["total_draft_tokens"]]
    ).tolist() == [2, 4]
    assert openai.event_of(b"data: [DONE]", "u") is None
    with pytest.raises(RefusedError, match="u refused: too long"):
        openai.event_of(b'data: {"error": {"message": "too long"}}', "u")
