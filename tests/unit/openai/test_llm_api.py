"""The client of the LLM API's model: input names, and new text from cumulative texts."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from specdec.client.connection import Connection
from specdec.client.request import Request
from specdec.images.openai.assembly import Piece
from specdec.images.openai.llm_api import _INPUTS, LlmApi
from specdec.images.openai.request import Served
from specdec.images.openai.triton import Triton

SERVED = Served(frozenset(_INPUTS), frozenset({"text_output"}), streams=True)


def client() -> LlmApi:
    return LlmApi(Connection("127.0.0.1:1"), "tensorrt_llm")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("a", "ab", "abc"), ("a", "b", "c")),
        # The second token completes a character whose first bytes came with the first token.
        (("a\ufffd", "a\u00e4", "a\u00e4b"), ("a", "\u00e4", "b")),
        # A character that is still incomplete at the end is part of the answer.
        (("a", "a\ufffd"), ("a", "\ufffd")),
        # The server cuts a stop string only when it is complete, so the text can get shorter.
        (("ab", "a"), ("ab", "")),
    ],
)
async def test_pieces_have_only_new_text(
    monkeypatch: pytest.MonkeyPatch, texts: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    async def whole(*_: Any, **__: Any) -> AsyncGenerator[Piece, None]:
        for number, text in enumerate(texts, 1):
            yield Piece(text, reason="stop" if number == len(texts) else None)

    monkeypatch.setattr(Triton, "pieces", whole)
    pieces = [piece.text async for piece in client().pieces(Request("p"), SERVED)]
    assert tuple(pieces) == expected


def test_inputs_have_the_names_and_the_shape_of_the_model() -> None:
    request = Request("p", max_tokens=5, seed=7, stop_words=("x",), stream=False)
    tensors = client().tensors(request, SERVED)
    assert {name: array.tolist() for name, array in tensors.items()} == {
        "text_input": [b"p"],
        "sampling_param_max_tokens": [5],
        "streaming": [False],
        "sampling_param_exclude_input_from_output": [True],
        "sampling_param_return_perf_metrics": [True],
        "sampling_param_seed": [7],
        "sampling_param_stop": [b"x"],
        "return_finish_reason": [True],
    }
    assert all(array.ndim == 1 for array in tensors.values())
    assert tensors["sampling_param_seed"].dtype.name == "uint64"


def test_stream_ends_at_stop_strings_in_the_endpoint() -> None:
    tensors = client().tensors(Request("p", stop_words=("x",)), SERVED)
    assert "sampling_param_stop" not in tensors
