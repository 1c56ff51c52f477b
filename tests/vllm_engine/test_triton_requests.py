"""Requests to the Triton model of vLLM at the limits, and such that could harm its engine."""

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cluster.processes import until
from specdec.triton.model_names import VLLM
from support.triton_client import Arrays, RefusedError, ask, stream, text
from support.triton_server import Server
from support.vllm_tests import installed
from support.vllm_triton import DRAFTS, LENGTH, inputs, repository, serving

# Tokens of the longest prompt with its answer.
LONGEST = 128
# Prompts of the pair's vocabulary.
VOCABULARY = 1024
pytestmark = [pytest.mark.slow, pytest.mark.triton, pytest.mark.vllm(gibibytes=2)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    files = repository(DRAFTS, max_model_len=LONGEST, max_num_seqs=8)
    with serving(installed(), files, tmp_path_factory.mktemp("server")) as running:
        yield running


def ids(server: Server, prompt: list[int], max_tokens: int) -> Arrays:
    """Return the whole answer to a prompt of token ids."""
    asked = inputs(
        max_tokens,
        {"ignore_eos": True},
        input_ids=prompt,
        return_token_ids=True,
        return_finish_reason=True,
        return_num_input_tokens=True,
    )
    (answer,) = ask(server.url, VLLM, **asked)
    return answer


def test_answers_end_at_the_longest_sequence(server: Server) -> None:
    prompt = [5, 6, 7]
    whole = ids(server, prompt, 10_000)
    tokens = whole["output_ids"].tolist()
    assert len(prompt) + len(tokens) == LONGEST
    assert whole["finish_reason"][0] == b"length"
    # Drafts near the end are shorter, and the answer stays the same.
    for missing in (1, 2, LENGTH + 1):
        end = ids(server, prompt + tokens[:-missing], 10_000)
        assert end["output_ids"].tolist() == tokens[-missing:]
        assert end["num_input_tokens"][0] == LONGEST - missing
        assert end["finish_reason"][0] == b"length"
    with pytest.raises(RefusedError, match=r"input_ids has 128 tokens.*a prompt of 127.*shorter"):
        ids(server, prompt + tokens, 1)


def test_request_is_stopped_by_its_id(server: Server) -> None:
    long = inputs(100, {"ignore_eos": True}, stream=True)
    expected = text(ask(server.url, VLLM, **long))
    with (
        stream(server.url, VLLM, request_id="first", **long) as first,
        stream(server.url, VLLM, request_id="second", **long) as second,
    ):
        begun = [next(iter(first)), next(iter(second))]
        assert not ask(server.url, VLLM, request_id="first", stop=np.array([True]))
        with pytest.raises(RefusedError, match="Request cancelled by client"):
            list(first)
        assert text([begun[1], *second]) == expected
    # The id of a request that has ended, or that never was, stops nothing.
    assert not ask(server.url, VLLM, request_id="first", stop=np.array([True]))
    until(lambda: server.metric("vllm:num_requests_running") == 0, lambda: "a request runs")


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        ({"choice": ["yes", "no"]}, {"yes", "no"}),
        ({"regex": "[0-3]{2}"}, {f"{a}{b}" for a in range(4) for b in range(4)}),
    ],
)
def test_output_has_the_requested_form(
    server: Server, asked: dict[str, Any], allowed: set[str]
) -> None:
    for structured in (asked, json.dumps(asked)):
        given = inputs(sampling={"structured_outputs": structured}, exclude_input_in_output=True)
        assert text(ask(server.url, VLLM, **given)) in allowed


def test_output_has_the_requested_schema(server: Server) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    sampling = {"structured_outputs": {"json": schema}}
    answer = text(ask(server.url, VLLM, **inputs(64, sampling, exclude_input_in_output=True)))
    # The tiny model may fill the rest with white space, which the schema allows.
    assert re.match(r'\s*\{\s*"a"\s*:\s*(true|false)\s*\}?\s*$', answer), answer


HOSTILE: list[tuple[Any, str]] = [
    ("[" * 100_000, "is no JSON"),
    ('{"a":' * 100_000, "is no JSON"),
    ("{", "is no JSON"),
    ("7", "is no JSON object"),
    ("\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"), "is no JSON"),
    (" " * 3_000_000, "characters: send at most"),
    ('{"temperature": NaN}', "NaN: send a finite number"),
    ('{"repetition_penalty": -Infinity}', "-Infinity: send a finite number"),
    ('{"temperature": 1e999}', "1e999: send a finite number"),
    ({"seed": 2**64}, "integers of 64 bits"),
    ('{"max_tokens": ' + "9" * 10_000 + "}", "integers of 64 bits"),
    ({"n": 9, "temperature": 1}, "n is 9, and the engine decodes 8 sequences"),
    ({"n": 2}, "n must be 1 when using greedy sampling"),
    ({"n": "two"}, "sampling_parameters is refused"),
    ({"stop": ["x"] * 100}, "stop has 100 texts: send at most 64"),
    ({"stop": [""]}, "stop cannot contain an empty string"),
    ({"stop": [["x"]]}, "sampling_parameters is refused"),
    ({"stop": {"a": "b"}}, "sampling_parameters is refused"),
    ({"bad_words": ["x"] * 100}, "bad_words has 100 texts: send at most 64"),
    ({"stop_token_ids": [VOCABULARY], "min_tokens": 4}, "stop_token_ids has 1024"),
    ({"stop_token_ids": [-1], "min_tokens": 4}, "stop_token_ids has -1"),
    ({"allowed_token_ids": [2**40]}, "out-of-vocab token id"),
    ({"allowed_token_ids": []}, "allowed_token_ids"),
    ({"logit_bias": {"1": 1.0}}, "logit_bias sampling parameters"),
    ({"logprobs": 2**40}, "greater than max allowed"),
    ({"prompt_logprobs": -5}, "prompt_logprobs must be non-negative"),
    ({"max_tokens": 0}, "max_tokens must be at least 1"),
    ({"min_tokens": 99}, "min_tokens must be less"),
    ({"top_p": 7}, "top_p must be in"),
    ({"temperature": []}, "sampling_parameters is refused"),
    ({"output_kind": 1}, "unknown sampling parameter output_kind"),
    ({"structured_outputs": {}}, "sampling_parameters is refused"),
    ({"structured_outputs": 7}, "structured_outputs is 7 and no object"),
    ({"structured_outputs": "{"}, "sampling_parameters is refused"),
    ({"structured_outputs": {"regex": "("}}, "."),
    ({"structured_outputs": {"json": "{"}}, "."),
    ({"structured_outputs": {"grammar": "root ::="}}, "no form that vLLM can compile"),
    ({"structured_outputs": {"choice": []}}, "Choice '\\[\\]' cannot be an empty list"),
    ({"structured_outputs": {"regex": "a", "grammar": "b"}}, "only use one kind"),
    ({"structured_outputs": {"_backend": "x", "regex": "a"}}, "has _backend; known are choice,"),
    ({"lora_name": "sql"}, "lora_name is 'sql', which is no adapter"),
    ({"lora_name": 7}, "lora_name is 7"),
    ({"lora_name": ["sql"]}, r"lora_name is \['sql'\]"),
]


@pytest.mark.parametrize(
    ("sampling", "message"), HOSTILE, ids=[str(case[0])[:30] for case in HOSTILE]
)
def test_hostile_sampling_parameters_are_refused(
    server: Server, sampling: Any, message: str
) -> None:
    given = inputs(sampling=sampling if isinstance(sampling, dict) else None)
    if isinstance(sampling, str):
        given["sampling_parameters"] = np.array([sampling.encode()], np.object_)
    with pytest.raises(RefusedError, match=message) as refused:
        ask(server.url, VLLM, **given)
    assert len(str(refused.value)) < 1000
    assert "Traceback" not in str(refused.value)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "input_ids is empty"),
        ([-1], "input_ids has -1: send token ids, which are at least 0"),
        ([VOCABULARY + 1000], "out of vocabulary"),
    ],
)
def test_prompts_out_of_the_vocabulary_are_refused(
    server: Server, prompt: list[int], message: str
) -> None:
    with pytest.raises(RefusedError, match=message):
        ids(server, prompt, 4)


def test_engine_still_answers(server: Server) -> None:
    """Last: none of the requests above has ended the engine, nor left a request in it."""
    assert text(ask(server.url, VLLM, **inputs()))
    until(lambda: server.metric("vllm:num_requests_running") == 0, lambda: "a request runs")
    assert server.metric("vllm:num_requests_waiting") == 0
    assert "fatal error" not in server.log()
