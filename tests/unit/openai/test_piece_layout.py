"""Pieces that are read without protobuf equal the pieces that protobuf reads."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from tritonclient.grpc import service_pb2

from specdec.client.answer import Counts
from specdec.images.openai import piece_layout
from specdec.images.openai.assembly import Piece
from specdec.images.openai.piece_layout import PieceLayout

NAMES = (
    "num_output_tokens", "num_input_tokens", "total_draft_tokens", "total_accepted_draft_tokens",
)  # fmt: skip


def response(text: bytes, numbers: tuple[int, ...] = (), *, final: bool = False) -> Any:
    reply = service_pb2.ModelStreamInferResponse()
    message = reply.infer_response
    message.model_name, message.model_version = "tensorrt_llm_bls", "1"
    message.parameters["triton_final_response"].bool_param = final
    contents = [("text_output", struct.pack("<I", len(text)) + text)]
    contents += [
        (name, struct.pack("<i", value)) for name, value in zip(NAMES, numbers, strict=False)
    ]
    for name, raw in contents:
        message.outputs.add(name=name, datatype="BYTES", shape=[1])
        message.raw_output_contents.append(raw)
    return reply


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return a list that receives every message that protobuf parses."""
    messages: list[bytes] = []
    parse = piece_layout.parse

    def recorded(data: bytes) -> Any:
        messages.append(data)
        return parse(data)

    monkeypatch.setattr(piece_layout, "parse", recorded)
    return messages


@pytest.mark.parametrize("size", [0, 1, 100, 123, 124, 127, 128, 200, 5000, 15000, 16379, 20000])
def test_later_pieces_equal_those_of_protobuf(size: int, parsed: list[bytes]) -> None:
    layout = PieceLayout()
    assert layout.piece(response(b"a", (1, 7, 4, 2)).SerializeToString()) is not None
    expected = Piece("x" * size, 3, 7, Counts(8, 5))
    data = response(b"x" * size, (3, 7, 8, 5)).SerializeToString()
    assert layout.piece(data) == expected
    # In a message above 16 KiB, length fields take more bytes; only protobuf reads it.
    assert len(parsed) == (1 if size <= 15000 else 2)


def test_layout_is_learned_from_messages_of_every_size(parsed: list[bytes]) -> None:
    for size in (1, 200, 20000):
        layout = PieceLayout()
        _ = layout.piece(response(b"y" * size).SerializeToString())
        parsed.clear()
        assert layout.piece(response("ä".encode()).SerializeToString()) == Piece("ä")
        assert len(parsed) == (1 if size == 20000 else 0)


def test_last_message_and_error_have_no_piece() -> None:
    layout = PieceLayout()
    assert layout.piece(response(b"a").SerializeToString()) == Piece("a")
    assert layout.piece(response(b"b", final=True).SerializeToString()) is None
    error = service_pb2.ModelStreamInferResponse(error_message="it broke")
    assert layout.piece(error.SerializeToString()) is None
    both = response(b"a")
    both.error_message = "it broke"
    assert layout.piece(both.SerializeToString()) is None
    assert layout.piece(b"") is None


def test_other_outputs_are_parsed_and_learned_again(parsed: list[bytes]) -> None:
    layout = PieceLayout()
    _ = layout.piece(response(b"a").SerializeToString())
    data = response(b"b", (2, 7)).SerializeToString()
    assert layout.piece(data) == Piece("b", 2, 7)
    assert layout.piece(data) == Piece("b", 2, 7)
    assert len(parsed) == 2


def test_field_after_the_contents_is_left_to_protobuf(parsed: list[bytes]) -> None:
    layout = PieceLayout()
    before = response(b"a").SerializeToString()
    _ = layout.piece(before)
    # In protobuf, a second response in a message replaces the parameters and adds outputs.
    data = before + response(b"b", final=True).SerializeToString()
    assert layout.piece(data) is None
    inner = before[2:] + response(b"b").infer_response.SerializeToString()
    data = b"\x12" + bytes([len(inner) & 0x7F | 0x80, len(inner) >> 7]) + inner
    assert layout.piece(data) == piece_layout.last_piece(piece_layout.parse(data).infer_response)
    assert len(parsed) == 4


def test_every_cut_of_a_message_is_left_to_protobuf(parsed: list[bytes]) -> None:
    layout = PieceLayout()
    data = response(b"a", (1, 7)).SerializeToString()
    _ = layout.piece(data)
    for end in range(1, len(data)):
        with pytest.raises(Exception, match="Error parsing message"):
            layout.piece(data[:end])
    assert len(parsed) == len(data)
