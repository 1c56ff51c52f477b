"""How each kind of server encodes a request and reads its answer, without a server."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from specdec.client.http_transport import event_of
from specdec.client.kinds import text_model
from specdec.client.tensors import strings
from specdec.servers.chunk import Counts, WholeTexts
from specdec.servers.encoding import Declaration, JsonCall, TensorCall
from specdec.servers.errors import BadRequestError, RefusedError
from specdec.servers.kind import kind, kinds
from specdec.servers.openai_api import OPENAI
from specdec.servers.request import Request
from specdec.triton import contract, llm_api
from specdec.triton.model_names import BLS, ENSEMBLE, TARGET

LLM_API = kind("llm_api").requests


def declared(*inputs: str, name: str = "m", ensemble: bool = False) -> Declaration:
    return Declaration(frozenset(inputs), frozenset({"text_output"}), True, name, ensemble)


def bls(version: str) -> Declaration:
    inputs = frozenset(tensor.name for tensor in contract.inputs(BLS, version))
    outputs = frozenset(tensor.name for tensor in contract.outputs(BLS, version))
    return Declaration(inputs, outputs, streams=True, name=BLS)


def listed(name: str, owner: str) -> Declaration:
    return OPENAI.declaration("", "u", {"data": [{"id": name, "owned_by": owner}]})


def test_declared_inputs_select_the_kind() -> None:
    assert text_model(declared("text_input", "max_tokens"), "u") is kind("bls").requests
    whole = declared("text_input", "sampling_param_max_tokens")
    assert text_model(whole, "u") is kind("llm_api").requests
    with pytest.raises(BadRequestError, match="model m at u has no input text_input"):
        text_model(declared("input_ids"), "u")


def test_every_kind_has_its_three_parts() -> None:
    for each in kinds():
        assert each.serving.ports
        assert each.requests.reader(Request("x")).end() is None
        assert each.counters.load("", "m", 3).running == 3
    assert {each.name for each in kinds()} == {
        *("bls", "llm_api", "trtllm_serve"),
        *("vllm", "vllm_serve"),
    }


def test_bls_gets_its_own_names_with_a_batch_dimension() -> None:
    request = Request("x", draft_tokens=3, stop_words=("a", "b"), token_counts=True)
    call = kind("bls").requests.encode(request, bls("1.2.1"))
    assert isinstance(call, TensorCall)
    assert call.inputs["num_draft_tokens"].shape == (1, 1)
    assert call.inputs["stop_words"].plain == ["a", "b"]
    assert call.inputs["stop_words"].shape == (1, 2)
    assert {"total_draft_tokens", "num_output_tokens"} <= set(call.outputs)
    assert "cum_log_probs" not in call.outputs


def test_a_model_without_draft_length_names_the_one_that_has_it() -> None:
    ensemble = declared("text_input", "max_tokens", "stream", name=ENSEMBLE, ensemble=True)
    with pytest.raises(BadRequestError, match="use model tensorrt_llm_bls, or leave"):
        kind("bls").requests.encode(Request("x", ENSEMBLE, draft_tokens=2), ensemble)


def test_a_stop_goes_to_the_model_that_takes_it() -> None:
    requests = kind("bls").requests
    call = requests.stop(declared("text_input", "max_tokens", "stop", name=BLS))
    assert call is not None
    assert (call.model, call.inputs["stop"].shape) == (BLS, (1, 1))
    behind = requests.stop(declared("text_input", "max_tokens", ensemble=True))
    assert behind is not None
    assert (behind.model, behind.inputs["input_ids"].plain) == (TARGET, 1)
    assert requests.stop(declared("text_input", "max_tokens")) is None
    alone = LLM_API.stop(declared("text_input"))
    assert alone is not None
    assert (alone.model, alone.inputs["stop"].shape) == (TARGET, (1,))
    assert OPENAI.stop(listed("m", "specdec")) is None


def test_whole_texts_become_new_text_and_characters_stay_complete() -> None:
    reader = WholeTexts()
    texts = ("a", "ab\ufffd", "ab\u00e9", "ab\u00e9\ufffd")
    parts = [reader.read({"text_output": strings((text,))}) for text in texts]
    assert [part.text for part in parts if part] == ["a", "b", "\u00e9", ""]
    rest = reader.end()
    assert rest is not None
    assert rest.text == "\ufffd"
    assert reader.end() is None


def test_the_llm_api_gets_its_own_names_as_the_repository_declares_them() -> None:
    inputs = {tensor.name for tensor in llm_api._inputs(llm_api.LlmApiPlan(""))}
    request = Request("p", TARGET, max_tokens=5, seed=7, stop_words=("x",), stream=False)
    call = LLM_API.encode(request, declared(*inputs, name=TARGET))
    assert isinstance(call, TensorCall)
    assert {name: tensor.plain for name, tensor in call.inputs.items()} == {
        "text_input": "p",
        "sampling_param_max_tokens": 5,
        "streaming": False,
        "sampling_param_exclude_input_from_output": True,
        "sampling_param_return_perf_metrics": True,
        "sampling_param_seed": 7,
        "sampling_param_stop": "x",
        "return_finish_reason": True,
    }
    assert all(tensor.shape == (1,) for tensor in call.inputs.values())
    assert call.inputs["sampling_param_seed"].dtype == "UINT64"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": 1.0}, "has no input temperature"),
        ({"chat": True}, "leave out --chat"),
        ({"draft_tokens": 2}, "drafts inside its engine, and has no input num_draft_tokens"),
        ({"use_draft_logits": True}, "has no input use_draft_logits; leave it out"),
    ],
)
def test_the_llm_api_refuses_what_it_lacks(change: dict[str, Any], message: str) -> None:
    model = declared("text_input", "streaming", "sampling_param_max_tokens")
    with pytest.raises(BadRequestError, match=message):
        LLM_API.encode(Request("x", "m", **change), model)


def test_a_chat_request_has_a_message_and_asks_for_usage() -> None:
    other = listed("m", "tensorrt_llm")
    call = OPENAI.encode(Request("hello", "", chat=True, stop_words=("a", "b")), other)
    assert isinstance(call, JsonCall)
    assert call.path == "chat/completions"
    assert call.body["model"] == "m"
    assert call.body["messages"] == [{"role": "user", "content": "hello"}]
    assert call.body["stream_options"] == {"include_usage": True}
    assert call.body["stop"] == ["a", "b"]
    assert "include_metrics" not in call.body
    with pytest.raises(BadRequestError, match="no input num_draft_tokens"):
        OPENAI.encode(Request("hello", draft_tokens=2), other)


def test_own_endpoint_takes_more_fields() -> None:
    own = listed("m", "specdec")
    assert OPENAI.takes_draft_length(own)
    call = OPENAI.encode(Request("x", draft_tokens=0, temperature=0.7, stream=False), own)
    assert isinstance(call, JsonCall)
    assert call.path == "completions"
    assert call.body == {
        "model": "m",
        "prompt": "x",
        "max_tokens": 64,
        "stream": False,
        "num_draft_tokens": 0,
        "temperature": 0.7,
        "include_metrics": True,
    }


@pytest.mark.parametrize(
    ("name", "items", "message"),
    [
        ("other", [{"id": "m"}], "u has no model other; give --model with one of: m"),
        ("", [{"id": "a"}, {"id": "b"}], "u has 2 models; give --model with one of: a, b"),
        ("", None, "u has 0 models; give --model with one of: none"),
    ],
)
def test_a_model_that_is_not_listed_is_refused(name: str, items: Any, message: str) -> None:
    with pytest.raises(BadRequestError, match=message):
        OPENAI.declaration(name, "u", {"data": items})


def test_events_of_completions_and_chats_become_chunks() -> None:
    reader = OPENAI.reader(Request("x", token_counts=True))
    event = event_of(
        b'data: {"choices":[{"delta":{"content":"hi"}}],"usage":{"completion_tokens":2},"metrics":'
        b'{"speculative_decoding":{"num_draft_tokens":4,"num_accepted_draft_tokens":1}}}',
        "u",
    )
    assert event is not None
    part = reader.read(event)
    assert part is not None
    assert (part.text, part.counts) == ("hi", Counts(4, 1))
    assert np.asarray(part.optional_outputs["num_output_tokens"]).tolist() == [2]
    assert reader.end() is None
    assert event_of(b"data: [DONE]", "u") is None
    with pytest.raises(RefusedError, match="u refused: too long"):
        event_of(b'data: {"error": {"message": "too long"}}', "u")


def test_counts_after_the_last_text_are_no_chunk_of_their_own() -> None:
    reader = OPENAI.reader(Request("x", token_counts=True))
    events: list[dict[str, Any]] = [
        {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
        {"choices": [{"delta": {"content": "a"}}]},
        {"choices": [{"delta": {}, "finish_reason": "length"}]},
        {"choices": [], "usage": {"completion_tokens": 3}},
    ]
    assert [part.text for event in events if (part := reader.read(event))] == ["a"]
    rest = reader.end()
    assert rest is not None
    assert (rest.text, rest.beams, rest.reason) == ("", (), "length")
    assert rest.optional_outputs["num_output_tokens"] == [3]


VLLM = kind("vllm").requests
VLLM_INPUTS = (
    *("text_input", "stream", "sampling_parameters", "exclude_input_in_output", "stop"),
    *("return_finish_reason", "return_logprobs", "return_cumulative_logprob"),
    *("return_num_input_tokens", "return_num_output_tokens"),
)


def test_vllm_gets_sampling_parameters_as_json() -> None:
    model = declared(*VLLM_INPUTS, name="vllm_model")
    assert text_model(model, "u") is VLLM
    seed = 2**64 - 1
    request = Request("p", "vllm_model", max_tokens=5, seed=seed, stop_words=("x",), stream=False)
    call = VLLM.encode(request, model)
    assert isinstance(call, TensorCall)
    plain = {name: tensor.plain for name, tensor in call.inputs.items()}
    assert json.loads(plain.pop("sampling_parameters")) == {
        "max_tokens": 5,
        "temperature": 0.0,
        "seed": -1,
        "stop": ["x"],
    }
    assert plain == {
        "text_input": "p",
        "stream": False,
        "exclude_input_in_output": True,
        "return_finish_reason": True,
    }
    assert all(tensor.shape == (1,) for tensor in call.inputs.values())
    stop = VLLM.stop(model)
    assert stop is not None
    assert (stop.model, stop.inputs["stop"].plain) == ("vllm_model", True)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"draft_tokens": 2}, "drafts inside its engine, and has no input num_draft_tokens"),
        ({"beam_width": 2}, "has no input beam_width; leave it out"),
        ({"chat": True}, "leave out --chat"),
    ],
)
def test_vllm_refuses_what_it_lacks(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadRequestError, match=sentence):
        VLLM.encode(Request("x", "vllm_model", **change), declared(*VLLM_INPUTS))


def test_vllm_gives_log_probabilities_as_json() -> None:
    request = Request("x", "vllm_model", log_probs=True)
    call = VLLM.encode(request, declared(*VLLM_INPUTS))
    assert isinstance(call, TensorCall)
    assert json.loads(call.inputs["sampling_parameters"].plain)["logprobs"] == 0
    text = json.dumps([{"7": {"logprob": -0.5}}, {"8": {"logprob": -1.0}}])
    assert VLLM.read_log_probs(b"\0\0\0\0" + text.encode()) == [-0.5, -1.0]
    part = VLLM.reader(request).read(
        {"text_output": strings(("ab",)), "logprobs": strings((text,))}
    )
    assert part is not None
    assert part.optional_outputs["output_log_probs"] == [-0.5, -1.0]
