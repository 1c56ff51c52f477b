"""The answer to a request: its chunks as they arrive, and the complete answer.

`generate.Client` and the benchmark create a `Chunk` from each response of the server. `Answer.add`
combines the chunks, whichever protocol delivered them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Optional outputs that a request can ask for.
OPTIONAL_OUTPUTS = (
    "cum_log_probs",
    "output_log_probs",
    "context_logits",
    "generation_logits",
    "num_input_tokens",
    "num_output_tokens",
)
_OUTPUT_TOKENS = "num_output_tokens"
ALWAYS = ("text_output", "total_draft_tokens", "total_accepted_draft_tokens")


@dataclass(frozen=True)
class Counts:
    """The numbers of drafted and of accepted tokens in one answer."""

    drafted: int
    accepted: int


@dataclass(frozen=True)
class Chunk:
    """One response with a part of the answer.

    Attributes:
        text: new text, of the first beam if there are several.
        counts: totals so far; None if the server does not report them.
        beams: the texts of all beams.
        optional_outputs: arrays by their Triton names, in the server's shapes.
    """

    text: str
    counts: Counts | None = None
    beams: tuple[str, ...] = ()
    optional_outputs: Mapping[str, NDArray[Any]] = field(default_factory=dict, compare=False)


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
        new = chunk.optional_outputs.get(_OUTPUT_TOKENS)
        if new is None:
            return {}
        return {
            _OUTPUT_TOKENS: self.optional_outputs.get(_OUTPUT_TOKENS, np.zeros_like(new)) + new
        }


def chunk(outputs: Mapping[str, NDArray[Any]], requested: frozenset[str]) -> Chunk | None:
    """Convert the output tensors of a response to a chunk; None without a text output.

    Args:
        outputs: by their Triton names.
        requested: names of the requested outputs; servers fill the others with placeholders.
    """
    text = outputs.get("text_output")
    if text is None or not text.size:
        return None
    beams = tuple(_text(beam) for beam in text.reshape(-1))
    optional_outputs = {
        name: outputs[name] for name in OPTIONAL_OUTPUTS if name in requested and name in outputs
    }
    return Chunk(beams[0], _counts(outputs), beams, optional_outputs)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _counts(outputs: Mapping[str, NDArray[Any]]) -> Counts | None:
    empty = np.empty(0)
    drafted = outputs.get("total_draft_tokens", empty)
    accepted = outputs.get("total_accepted_draft_tokens", empty)
    if not drafted.size or not accepted.size:
        return None
    return Counts(int(drafted.reshape(-1)[0]), int(accepted.reshape(-1)[0]))
