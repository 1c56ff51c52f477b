"""What comes back: chunks of an answer, and the answer they make."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

# What is kept beside the text, where it was asked for.
EXTRAS = (
    "cum_log_probs",
    "output_log_probs",
    "context_logits",
    "generation_logits",
    "num_input_tokens",
    "num_output_tokens",
)
_NEW = "num_output_tokens"
ALWAYS = ("text_output", "total_draft_tokens", "total_accepted_draft_tokens")


@dataclass(frozen=True)
class Counts:
    """Draft tokens offered to the target for one answer, and those it accepted."""

    drafted: int
    accepted: int


@dataclass(frozen=True)
class Chunk:
    """A piece of the answer.

    Attributes:
        text: new text; of the first beam where there are several.
        counts: those so far, where the server tells them.
        beams: the texts of all beams.
        extras: further outputs by Triton's names, as the server shaped them.
    """

    text: str
    counts: Counts | None = None
    beams: tuple[str, ...] = ()
    extras: Mapping[str, NDArray[Any]] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Answer:
    """A whole answer.

    Attributes:
        text: what was generated.
        chunks: how many pieces carried text.
        counts: None when the server does not tell.
        first_chunk_seconds, seconds: since the request was sent.
        log_probs: of the new tokens, where they were asked for.
        beams: the texts of all beams, in the last chunk.
        extras: further outputs of the last chunk that had them; num_output_tokens of all.
    """

    text: str = ""
    chunks: int = 0
    counts: Counts | None = None
    first_chunk_seconds: float = 0.0
    seconds: float = 0.0
    log_probs: tuple[float, ...] = ()
    beams: tuple[str, ...] = ()
    extras: Mapping[str, NDArray[Any]] = field(default_factory=dict, compare=False)

    def add(self, chunk: Chunk, elapsed: float) -> "Answer":
        """The answer with one more chunk, which arrived `elapsed` seconds after the request."""
        probabilities = chunk.extras.get("output_log_probs")
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
            extras={**self.extras, **chunk.extras, **self._grown(chunk)},
        )

    def _grown(self, chunk: Chunk) -> dict[str, NDArray[Any]]:
        """The number of tokens so far: a chunk tells its own alone."""
        new = chunk.extras.get(_NEW)
        return {} if new is None else {_NEW: self.extras.get(_NEW, np.zeros_like(new)) + new}


def chunk(outputs: Mapping[str, NDArray[Any]], asked: frozenset[str]) -> Chunk | None:
    """A response's tensors as a chunk, None without text.

    Args:
        outputs: by Triton's names.
        asked: names of the extras that were asked for; the others hold fillers.
    """
    text = outputs.get("text_output")
    if text is None or not text.size:
        return None
    beams = tuple(_text(one) for one in text.reshape(-1))
    extras = {name: outputs[name] for name in EXTRAS if name in asked and name in outputs}
    return Chunk(beams[0], _counts(outputs), beams, extras)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _counts(outputs: Mapping[str, NDArray[Any]]) -> Counts | None:
    empty = np.empty(0)
    drafted = outputs.get("total_draft_tokens", empty)
    accepted = outputs.get("total_accepted_draft_tokens", empty)
    if not drafted.size or not accepted.size:
        return None
    return Counts(int(drafted.reshape(-1)[0]), int(accepted.reshape(-1)[0]))
