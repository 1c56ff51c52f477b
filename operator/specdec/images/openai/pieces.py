"""Read the outputs of a response as a piece of an answer."""

import struct
from typing import Any

from specdec.images.openai.assembly import Piece
from specdec.servers.chunk import ACCEPTED, DRAFTED, OUTPUT_TOKENS, REASON, REASONS, TEXT, Counts
from specdec.servers.encoding import Requests

TOKENS, PROMPT_TOKENS = OUTPUT_TOKENS, "num_input_tokens"
HISTOGRAM = "acceptance_histogram"
_NUMBER = struct.Struct("<i").unpack_from


def piece(response: Any, requests: Requests) -> Piece | None:
    """The piece of a `ModelInferResponse`; None without outputs, as the last one may be.

    Args:
        response: of the server.
        requests: how the server is asked.
    """
    if not response.outputs:
        return None
    names = [output.name for output in response.outputs]
    value = dict(zip(names, response.raw_output_contents, strict=False)).get
    tokens, log_probs = value(TOKENS), requests.read_log_probs(value(requests.log_probs, b""))
    drafted, accepted, histogram = value(DRAFTED), value(ACCEPTED), value(HISTOGRAM, b"")
    reason = _text(value(REASON, b""))
    return Piece(
        _text(value(TEXT, b"")),
        _NUMBER(tokens)[0] if tokens else len(log_probs),
        _NUMBER(prompt)[0] if (prompt := value(PROMPT_TOKENS)) else None,
        Counts(_NUMBER(drafted)[0], _NUMBER(accepted)[0]) if drafted and accepted else None,
        log_probs,
        struct.unpack(f"<{len(histogram) // 4}i", histogram),
        reason if reason in REASONS else None,
    )


def _text(value: bytes) -> str:
    """The string of a tensor with one element, which begins with its length in four bytes."""
    return value[4:].decode("utf-8", "replace")
