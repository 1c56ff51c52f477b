"""The text models of the ensemble answer every request with tensors or an error message."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from support.payload import MODELS, load

load("specdec_text")
PAIR = MODELS.parent / "pair" / "target"


class Tensor:
    """A fake tensor of the Python backend."""

    def __init__(self, name: str, array: Any) -> None:
        self._name, self._array = name, array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> Any:
        return self._array


class Response:
    """The answer of a model: tensors, or an error with its code."""

    def __init__(self, tensors: Any = (), error: Any = None) -> None:
        self.error = error
        self.arrays = {tensor.name(): tensor.as_numpy() for tensor in tensors}


class Error:
    """A fake error of the Python backend."""

    INVALID_ARG = "INVALID_ARG"

    def __init__(self, message: str, code: str = "INTERNAL") -> None:
        self.message, self.code = message, code


@pytest.fixture
def logged() -> list[str]:
    return []


@pytest.fixture
def backend(logged: list[str]) -> Iterator[None]:
    """Install a fake module of the Python backend with the parts that the models use."""
    fake = ModuleType("triton_python_backend_utils")
    vars(fake).update(
        Tensor=Tensor,
        InferenceResponse=Response,
        TritonError=Error,
        TritonModelException=RuntimeError,
        Logger=SimpleNamespace(log_error=logged.append),
    )
    with patch.dict(sys.modules, {fake.__name__: fake}):
        yield


def opened(name: str) -> Any:
    """Load and initialize a model as Triton does."""
    spec = importlib.util.spec_from_file_location(name, MODELS / name / "1" / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    parameters = {"tokenizer_dir": {"string_value": str(PAIR)}}
    model = module.TritonPythonModel()
    model.initialize({"model_config": json.dumps({"parameters": parameters})})
    return model


def respond(model: Any, **arrays: Any) -> Response:
    tensors = [Tensor(name, array) for name, array in arrays.items()]
    (response,) = model.execute([SimpleNamespace(inputs=lambda: tensors)])
    assert isinstance(response, Response)
    return response


def texts(tokens: Any, lengths: Any) -> Response:
    shape = np.array(lengths, np.int32)
    return respond(
        opened("postprocessing"), TOKENS_BATCH=np.array(tokens, np.int32), SEQUENCE_LENGTH=shape
    )


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(
    ("tokens", "lengths", "expected"),
    [
        ([[[33, 34]]], [[2]], ["AB"]),
        ([[[33, 34]]], [[0]], [""]),
        # Ids outside the vocabulary give no text.
        ([[[33, -1, 34, 1024, 2**31 - 1, -(2**31)]]], [[6]], ["AB"]),
        ([[[33], [34]], [[35], [36]]], [[1, 1], [1, 0]], ["A", "B", "C", ""]),
        # The end of a stream has no token.
        (np.empty((1, 1, 0)), [[7]], [""]),
        (np.empty((1, 0, 0)), np.empty((1, 0)), []),
        (np.empty((0, 1, 4)), np.empty((0, 1)), []),
    ],
)
def test_tokens_become_text(tokens: Any, lengths: Any, expected: Any) -> None:
    response = texts(tokens, lengths)
    assert response.error is None
    assert [text.decode() for text in response.arrays["OUTPUT"].tolist()] == expected


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(
    ("tokens", "lengths", "sentence"),
    [
        (
            [[[33, 34]]],
            [[1, 1]],
            "SEQUENCE_LENGTH has the shape [1, 2] beside [1, 1, 2] of TOKENS_BATCH: "
            "send one length for every beam of every row",
        ),
        ([[[33, 34]]], [[1], [1]], "SEQUENCE_LENGTH has the shape [2, 1] beside [1, 1, 2] of"),
        ([[33, 34]], [[1, 1]], "SEQUENCE_LENGTH has the shape [1, 2] beside [1, 2] of"),
        (
            [[[33, 34]]],
            [[-1]],
            "SEQUENCE_LENGTH has -1, but TOKENS_BATCH has 2 tokens in each beam: "
            "send a number from 0 to that",
        ),
        ([[[33, 34]]], [[3]], "SEQUENCE_LENGTH has 3, but TOKENS_BATCH has 2 tokens in each"),
        ([[[33], [34]]], [[1, 2**31 - 1]], "SEQUENCE_LENGTH has 2147483647, but TOKENS_BATCH has"),
        (np.empty((1, 1, 0)), [[-5]], "SEQUENCE_LENGTH has -5, but TOKENS_BATCH has 0 tokens"),
    ],
)
def test_odd_shapes_and_lengths_get_a_sentence(tokens: Any, lengths: Any, sentence: str) -> None:
    error = texts(tokens, lengths).error
    assert error.message.startswith(sentence)
    assert error.code == "INVALID_ARG"


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", ["preprocessing", "postprocessing"])
def test_a_failure_of_the_model_shows_no_traceback(name: str, logged: list[str]) -> None:
    response = respond(opened(name))
    assert response.error.message == (
        f"{name} failed on this request: the server's log has the details"
    )
    assert response.error.code == "INTERNAL"
    (line,) = logged
    assert line.startswith(f"{name}: KeyError: ")


def tokens_of(**more: Any) -> Response:
    given = {
        "QUERY": np.array([[b"ab"]], object),
        "REQUEST_OUTPUT_LEN": np.array([[4]], np.int32),
    }
    return respond(opened("preprocessing"), **(given | more))


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"QUERY": np.empty((0, 1), object)}, "text_input is empty: send at least one character"),
        ({"QUERY": np.array([[b""]], object)}, "text_input is empty: send at least one character"),
        ({"QUERY": np.array([[b"a\xff"]], object)}, "text_input is not UTF-8 at byte 1"),
        (
            {"QUERY": np.array([[b"a" * (1 << 21)]], object)},
            "text_input has 2097152 bytes, more than the limit of 1048576 for a prompt",
        ),
        (
            {"DECODER_QUERY": np.array([[b"a" * (1 << 21)]], object)},
            "decoder_text_input has 2097152 bytes, more than the limit of 1048576 for a prompt",
        ),
        (
            {"STOP_WORDS_DICT": np.array([[b"a"] * 1025], object)},
            "stop_words has 1025 items, more than the limit of 1024 in a request",
        ),
        (
            {"BAD_WORDS_DICT": np.array([[b"a" * 65537]], object)},
            "bad_words has 65537 bytes, more than the limit of 65536 in a request",
        ),
        (
            {"EMBEDDING_BIAS_WORDS": np.array([[b"a"] * 1025], object)},
            "embedding_bias_words has 1025 items, more than the limit of 1024 in a request",
        ),
        (
            {"EMBEDDING_BIAS_WEIGHTS": np.array([[1.0]], np.float32)},
            "embedding_bias_words has 0 words and embedding_bias_weights 1 weights",
        ),
    ],
)
def test_requests_that_cannot_be_encoded_get_a_sentence(
    more: dict[str, Any], sentence: str
) -> None:
    error = tokens_of(**more).error
    assert error.message.startswith(sentence)
    assert error.code == "INVALID_ARG"


@pytest.mark.usefixtures("backend")
def test_lists_without_items_are_no_lists() -> None:
    nothing = np.empty((1, 0), object)
    arrays = tokens_of(
        STOP_WORDS_DICT=nothing,
        BAD_WORDS_DICT=nothing,
        EMBEDDING_BIAS_WORDS=nothing,
        EMBEDDING_BIAS_WEIGHTS=np.empty((1, 0), np.float32),
    ).arrays
    assert arrays["STOP_WORDS_IDS"].shape == arrays["BAD_WORDS_IDS"].shape == (1, 2, 0)
    assert not arrays["EMBEDDING_BIAS"].any()
