"""Read pieces from the messages of streams.

The messages for requests of the same outputs differ in their values only. The bytes before the
values (the names of model and outputs, types and shapes) equal those of the previous message. So
the first message is parsed whole. Later messages that begin with the same bytes are read without
protobuf. Reading them in this way runs much less code. This matters, because the processor's
caches no longer hold the code when a piece arrives (ADR 0142). Every other message is parsed
whole.
"""

import struct
from collections.abc import Sequence
from typing import Any

from tritonclient.grpc import service_pb2

from specdec.client.answer import Counts
from specdec.client.grpc_calls import is_final
from specdec.images.openai.assembly import Piece

TEXT, TOKENS, PROMPT_TOKENS = "text_output", "num_output_tokens", "num_input_tokens"
DRAFTED, ACCEPTED = "total_draft_tokens", "total_accepted_draft_tokens"
LOG_PROBS, HISTOGRAM = "output_log_probs", "acceptance_histogram"
# Only the LLM API's model has this output. Before the end of an answer, its value is not in
# `_REASONS`.
REASON, _REASONS = "finish_reason", ("stop", "length")
parse = service_pb2.ModelStreamInferResponse.FromString
_NUMBER = struct.Struct("<i").unpack_from
# Tags of protobuf: the response is field 2 of the message, and the bytes of an output are field 6
# of the response.
_RESPONSE, _CONTENTS = 0x12, 0x32
# Each byte holds 7 bits of a length. Its highest bit is set if a further byte follows.
_MORE, _LOW = 0x80, 0x7F


class Outputs:
    """The outputs of a response, by position."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names, self.count = names, len(names)
        positions = {name: index for index, name in enumerate(names)}
        # An absent output has position -1: `piece` puts empty bytes behind the others.
        self._text, self._tokens, self._prompt, self._drafted, self._accepted = (
            positions.get(name, -1) for name in (TEXT, TOKENS, PROMPT_TOKENS, DRAFTED, ACCEPTED)
        )
        self._log_probs, self._histogram, self._reason = (
            positions.get(name, -1) for name in (LOG_PROBS, HISTOGRAM, REASON)
        )

    def piece(self, contents: Sequence[bytes]) -> Piece:
        """The piece with these contents."""
        values = [*contents, b""]
        tokens, prompt = values[self._tokens], values[self._prompt]
        drafted, accepted = values[self._drafted], values[self._accepted]
        log_probs, histogram = values[self._log_probs], values[self._histogram]
        reason = values[self._reason]
        return Piece(
            values[self._text][4:].decode("utf-8", "replace"),
            _NUMBER(tokens)[0] if tokens else len(log_probs) // 4,
            _NUMBER(prompt)[0] if prompt else None,
            Counts(_NUMBER(drafted)[0], _NUMBER(accepted)[0]) if drafted and accepted else None,
            struct.unpack(f"<{len(log_probs) // 4}f", log_probs) if log_probs else (),
            struct.unpack(f"<{len(histogram) // 4}i", histogram) if histogram else (),
            _reason(reason) if reason else None,
        )


class PieceLayout:
    """Where the pieces stand in their messages, for requests of the same outputs."""

    def __init__(self) -> None:
        self._outputs = Outputs([])
        self._before = b""

    def piece(self, data: bytes) -> Piece | None:
        """The piece of a message; None for an error, the last response, or one without outputs."""
        begin = len(self._before)
        if begin and (start := _start(data)) and data.startswith(self._before, start):
            contents = _contents(data, start + begin, self._outputs.count)
            if contents is not None:
                return self._outputs.piece(contents)
        return self._parsed(data)

    def _parsed(self, data: bytes) -> Piece | None:
        reply = parse(data)
        response = reply.infer_response
        # Only errors have an `error_message`, and only the last response is final.
        if reply.error_message or is_final(response) or not response.outputs:
            return None
        names, contents = _names(response), list(response.raw_output_contents)
        outputs = self._outputs if names == self._outputs.names else Outputs(names)
        if start := _start(data):
            written = b"".join(map(_field, contents))
            if data.endswith(written) and len(contents) == outputs.count:
                self._outputs, self._before = outputs, data[start : len(data) - len(written)]
        return outputs.piece(contents)


def last_piece(response: Any) -> Piece | None:
    """The piece of a response that may be the last; None if it has no outputs."""
    if not response.outputs:
        return None
    return Outputs(_names(response)).piece(response.raw_output_contents)


def _names(response: Any) -> list[str]:
    return [output.name for output in response.outputs]


def _start(data: bytes) -> int:
    """Where the response begins in a message that has nothing else; 0 if it may have more."""
    size = len(data)
    if size < 3 or data[0] != _RESPONSE:
        return 0
    length = data[1]
    if length < _MORE:
        return 2 if length + 2 == size else 0
    return 3 if data[2] < _MORE and (length & _LOW | data[2] << 7) + 3 == size else 0


def _contents(data: bytes, at: int, count: int) -> list[bytes] | None:
    """The contents of `count` outputs; None if the message has anything else from `at` on."""
    contents, size = [], len(data)
    for _ in range(count):
        if at + 3 > size or data[at] != _CONTENTS:
            return None
        length, at = data[at + 1], at + 2
        if length >= _MORE:
            if data[at] >= _MORE:
                return None
            length, at = length & _LOW | data[at] << 7, at + 1
        contents.append(data[at : at + length])
        at += length
    return contents if at == size else None


def _field(contents: bytes) -> bytes:
    """The contents of an output as protobuf writes them."""
    length = len(contents)
    if length < _MORE:
        return b"%c%c%b" % (_CONTENTS, length, contents)
    return b"%c%c%c%b" % (_CONTENTS, length & _LOW | _MORE, length >> 7 & _LOW, contents)


def _reason(value: bytes) -> str | None:
    text = value[4:].decode(errors="replace")
    return text if text in _REASONS else None
