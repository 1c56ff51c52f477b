"""The complete answer to a request, combined from its chunks by `Answer.add`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.servers.chunk import OUTPUT_TOKENS, Chunk, Counts

__all__ = ["Answer", "Chunk", "Counts"]


@dataclass(frozen=True)
class Answer:
    """A complete answer.

    Attributes:
        text: the generated text.
        chunks: number of chunks with text.
        counts: None if the server does not report them.
        first_chunk_seconds, seconds: since the request was sent.
        log_probs: of the new tokens, if requested.
        beams: the texts of all beams in the last chunk.
        optional_outputs: of the last chunk that had them; num_output_tokens is the sum.
    """

    text: str = ""
    chunks: int = 0
    counts: Counts | None = None
    first_chunk_seconds: float = 0.0
    seconds: float = 0.0
    log_probs: tuple[float, ...] = ()
    beams: tuple[str, ...] = ()
    optional_outputs: Mapping[str, NDArray[Any]] = field(default_factory=dict, compare=False)

    def add(self, chunk: Chunk, elapsed: float) -> "Answer":
        """The answer with one more chunk, which arrived `elapsed` seconds after the request."""
        probabilities = chunk.optional_outputs.get("output_log_probs")
        new = () if probabilities is None else tuple(probabilities.reshape(-1).tolist())
        return replace(
            self,
            text=self.text + chunk.text,
            chunks=self.chunks + bool(chunk.text),
            counts=chunk.counts or self.counts,
            first_chunk_seconds=self.first_chunk_seconds or elapsed,
            seconds=elapsed,
            log_probs=self.log_probs + new,
            beams=chunk.beams or self.beams,
            optional_outputs={
                **self.optional_outputs,
                **chunk.optional_outputs,
                **self._token_count(chunk),
            },
        )

    def _token_count(self, chunk: Chunk) -> dict[str, NDArray[Any]]:
        """The number of output tokens so far: each chunk reports only its own."""
        new = chunk.optional_outputs.get(OUTPUT_TOKENS)
        if new is None:
            return {}
        return {OUTPUT_TOKENS: self.optional_outputs.get(OUTPUT_TOKENS, np.zeros_like(new)) + new}
