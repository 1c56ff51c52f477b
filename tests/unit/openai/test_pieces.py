"""The outputs of a response as a piece of an answer."""

from __future__ import annotations

import struct

import pytest
from tritonclient.grpc import service_pb2

from specdec.client.answer import Counts
from specdec.images.openai.assembly import Piece
from specdec.images.openai.pieces import piece
from specdec.servers.kind import kind


def text(value: bytes) -> bytes:
    return struct.pack("<I", len(value)) + value


def numbers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ({"text_output": text("ä".encode())}, Piece("ä")),
        ({"text_output": text(b"a\xff")}, Piece("a\ufffd")),
        ({"text_output": text(b"a"), "finish_reason": text(b"stop")}, Piece("a", reason="stop")),
        ({"text_output": text(b"a"), "finish_reason": text(b"None")}, Piece("a")),
        (
            {
                "acceptance_histogram": numbers(3, 1),
                "total_accepted_draft_tokens": numbers(5),
                "total_draft_tokens": numbers(8),
                "num_input_tokens": numbers(7),
                "num_output_tokens": numbers(3),
                "text_output": text(b"a"),
            },
            Piece("a", 3, 7, Counts(8, 5), histogram=(3, 1)),
        ),
        # Releases that report no number of tokens report a probability for each.
        (
            {"text_output": text(b"a"), "output_log_probs": struct.pack("<2f", -0.5, -1)},
            Piece("a", 2, log_probs=(-0.5, -1.0)),
        ),
    ],
)  # fmt: skip
def test_outputs_are_read_by_name(outputs: dict[str, bytes], expected: Piece) -> None:
    response = service_pb2.ModelInferResponse()
    for name, contents in outputs.items():
        response.outputs.add(name=name)
        response.raw_output_contents.append(contents)
    assert piece(response, kind("bls").requests) == expected


def test_response_without_outputs_is_no_piece() -> None:
    assert piece(service_pb2.ModelInferResponse(), kind("bls").requests) is None
