"""The Reference engine's decoding with logits from a table, so the exact distribution is known.

The engine's own code reads, samples, verifies and answers requests. Only the network is replaced
by a table with the logits after every token. Like TensorRT-LLM, and unlike the Reference backend,
this engine restarts its random numbers with every call: it counts positions from the call's first
token.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from specdec.images.backend.tensorrtllm.reference_engine import wire
from specdec.images.backend.tensorrtllm.reference_engine.answers import answer
from specdec.images.backend.tensorrtllm.reference_engine.inputs import Call
from specdec.images.backend.tensorrtllm.reference_engine.kv import KVBuffer, Reservation
from specdec.images.backend.tensorrtllm.reference_engine.request import Request, Ticket, Update
from specdec.images.backend.tensorrtllm.reference_engine.sequence import Sequence as Decoding
from support.engine_config import tiny_config

Floats = npt.NDArray[np.float32]
LONGEST = 4096


class Table:
    """A network for the decoding: [vocabulary, vocabulary] logits, selected by the last token."""

    noise = 0.0

    def __init__(self, logits: Floats) -> None:
        self.logits = logits
        self.config = tiny_config(
            vocab_size=len(logits),
            max_batch_size=1,
            max_seq_len=LONGEST,
            max_num_tokens=LONGEST,
            max_draft_len=16,
        )

    def canonical(self, tokens: npt.NDArray[np.int64]) -> Floats:
        """Return the same logits again, because near ties do not occur."""
        row: Floats = self.logits[tokens[-1]]
        return row


class TableEngine:
    """Answers calls one after another, in the caller's thread.

    Args:
        logits: [vocabulary, vocabulary], selected by the last token.
        seed: returns the seed for a request.
    """

    def __init__(self, logits: Floats, seed: Callable[[Request], int]) -> None:
        self._table = Table(logits)
        self._buffer = KVBuffer(self._table.config, 64)
        self._seed = seed

    def call(self, inputs: Mapping[str, Any], outputs: list[str]) -> Iterator[dict[str, Any]]:
        """Yield the whole answer of each row.

        Raises:
            RequestError: the call is invalid.
        """
        for row, asked in enumerate(wire.parse_call(Call(inputs), self._table.config)):
            rules = replace(asked.rules, seed=self._seed(asked))
            update = self._decode(replace(asked, prompt=asked.prompt[-1:], rules=rules))
            yield answer(asked, update, row, False, outputs)

    def _decode(self, request: Request) -> Update:
        self._buffer.length = 0
        ticket = Ticket(request, lambda update: None)
        table: Any = self._table
        decoding = Decoding(ticket, table, Reservation(self._buffer, 0), None)
        while not decoding.finished:
            rows = decoding.rows()
            decoding.advance(rows, self._table.logits[rows.tokens[-rows.logit_rows :]])
        return decoding.update()
