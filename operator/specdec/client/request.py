"""What is asked of a served model, checked before anything is sent."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from specdec.client.errors import BadRequestError

BLS = "tensorrt_llm_bls"
ENSEMBLE = "ensemble"

# One field of ours may have several spellings on the wire: releases renamed it.
_SEED_NAMES = ("seed", "random_seed")


@dataclass(frozen=True)
class Request:
    """One prompt for one Triton model.

    Attributes:
        prompt: the text to continue.
        model: `tensorrt_llm_bls` speculates, `ensemble` is the plain path of the same target.
        max_tokens: new tokens at most.
        draft_tokens: draft tokens a round; None takes the server's default, 0 turns it off.
        stream: several chunks instead of one.
        temperature, top_k, top_p, seed: sampling; without them the server decodes greedily.
        stop_words: the answer ends with the first of them, as in the engines.

    Raises:
        BadRequestError: a value no server could take.
    """

    prompt: str
    model: str = BLS
    max_tokens: int = 64
    draft_tokens: int | None = None
    stream: bool = True
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    stop_words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.prompt:
            raise BadRequestError("prompt is empty; give at least one character")
        if self.max_tokens < 1:
            raise BadRequestError(f"max tokens is {self.max_tokens}; set it to 1 or more")
        if self.draft_tokens is not None and self.draft_tokens < 0:
            raise BadRequestError(
                f"draft tokens is {self.draft_tokens}; set it to 0 (off) or more, or leave it out"
            )
        if self.draft_tokens is not None and self.model == ENSEMBLE:
            raise BadRequestError(
                f"model {ENSEMBLE} takes no draft tokens; ask model {BLS}, or leave them out"
            )

    def tensors(self, declared: Collection[str]) -> dict[str, np.ndarray[Any, Any]]:
        """The request as arrays of shape [1, n], by the input names the model declares.

        Raises:
            BadRequestError: the model has no input for a value that was asked for.
        """
        return {
            self._spelling(field, declared): array.reshape(1, -1)
            for field, array in self._fields(declared)
        }

    def _fields(self, declared: Collection[str]) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        yield "text_input", _strings((self.prompt,))
        yield "max_tokens", np.array([self.max_tokens], np.int32)
        yield "stream", np.array([self.stream])
        # The text of an answer is what was generated; the prompt is known here.
        yield "exclude_input_in_output", np.array([True])
        if "return_perf_metrics" in declared:
            yield "return_perf_metrics", np.array([True])
        optional: tuple[tuple[str, float | None, type[np.generic]], ...] = (
            ("num_draft_tokens", self.draft_tokens, np.int32),
            ("temperature", self.temperature, np.float32),
            ("top_k", self.top_k, np.int32),
            ("top_p", self.top_p, np.float32),
            ("seed", self.seed, np.uint64),
        )
        for field, value, dtype in optional:
            if value is not None:
                yield field, np.array([value], dtype)
        if self.stop_words:
            yield "stop_words", _strings(self.stop_words)

    def _spelling(self, field: str, declared: Collection[str]) -> str:
        spellings = _SEED_NAMES if field == "seed" else (field,)
        for name in spellings:
            if name in declared:
                return name
        raise BadRequestError(f"model {self.model} has no input {field}; leave it out")


def _strings(values: tuple[str, ...]) -> np.ndarray[Any, Any]:
    return np.array([value.encode() for value in values], dtype=np.object_)
