"""Options of decoding, under the names that each model and release gives them."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.client.errors import BadRequestError

Field = tuple[str, NDArray[Any]]

# One field of ours may have several spellings on the wire: releases renamed some, and the engine's
# names differ from those of the models that take text.
_SPELLINGS = {
    "seed": ("seed", "random_seed"),
    "min_tokens": ("min_tokens", "min_length"),
    "top_k": ("top_k", "runtime_top_k"),
    "top_p": ("top_p", "runtime_top_p"),
    "length_penalty": ("length_penalty", "len_penalty"),
}
_NUMBERS: tuple[tuple[str, type[np.generic]], ...] = (
    ("temperature", np.float32),
    ("top_k", np.int32),
    ("top_p", np.float32),
    ("seed", np.uint64),
    ("min_tokens", np.int32),
    ("beam_width", np.int32),
    ("repetition_penalty", np.float32),
    ("presence_penalty", np.float32),
    ("frequency_penalty", np.float32),
    ("length_penalty", np.float32),
    ("end_id", np.int32),
    ("pad_id", np.int32),
)
_INT32 = 2**31
_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
# What a value must satisfy, and how that is said.
_RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "temperature": (lambda v: v >= 0, "0 or more"),
    "top_k": (lambda v: 0 <= v < _INT32, "0 (off) or more"),
    "top_p": (lambda v: 0 <= v <= 1, "between 0 and 1"),
    "seed": (lambda v: 0 <= v < 2**64, "between 0 and 2**64-1"),
    "min_tokens": (lambda v: 0 <= v < _INT32, "0 or more"),
    "beam_width": (lambda v: 1 <= v < _INT32, "1 or more"),
    "repetition_penalty": (lambda v: 0 < v < float("inf"), "above 0"),
    "end_id": (lambda v: -1 <= v < _INT32, "a token id, or -1 for none"),
    "pad_id": (lambda v: -1 <= v < _INT32, "a token id, or -1 for none"),
}


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are chosen and when an answer ends; None leaves a value to the server.

    Attributes:
        temperature, top_k, top_p, seed: sampling; without them the server decodes greedily.
        min_tokens: the answer does not end before.
        beam_width: beams; above 1 only without speculation.
        repetition_penalty, presence_penalty, frequency_penalty: against saying things again.
        length_penalty: of beam search.
        end_id, pad_id: token ids in place of the tokenizer's.
        stop_words: the answer ends with the first of them, as in the engines.
        bad_words: never generated.
        bias_words, bias_weights: added to the logits of the words' tokens; one weight a word.

    Raises:
        BadRequestError: a value no server could take.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    min_tokens: int | None = None
    beam_width: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    length_penalty: float | None = None
    end_id: int | None = None
    pad_id: int | None = None
    stop_words: tuple[str, ...] = ()
    bad_words: tuple[str, ...] = ()
    bias_words: tuple[str, ...] = ()
    bias_weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name, _ in _NUMBERS:
            value = getattr(self, name)
            allowed, said = _RANGES.get(name, (np.isfinite, "a finite number"))
            if value is not None and not allowed(value):
                raise BadRequestError(f"{name.replace('_', ' ')} is {value}; set it to {said}")
        if len(self.bias_words) != len(self.bias_weights):
            raise BadRequestError(
                f"embedding bias has {len(self.bias_words)} words and "
                f"{len(self.bias_weights)} weights; give one weight for each word"
            )
        if "" in (*self.stop_words, *self.bad_words, *self.bias_words):
            raise BadRequestError("a stop, bad or bias word is empty; leave it out")

    @property
    def draws(self) -> bool:
        """Whether tokens are drawn rather than the likeliest taken."""
        return any(value is not None for value in (self.temperature, self.top_k, self.top_p))

    def numbers(self) -> Iterator[Field]:
        """The values that were set, each [1]."""
        for name, dtype in _NUMBERS:
            value = getattr(self, name)
            if value is not None:
                yield name, np.array([value], dtype)


def strings(values: Iterable[str]) -> NDArray[Any]:
    """Texts as Triton's clients send them: [n] of UTF-8 bytes."""
    return np.array([value.encode() for value in values], dtype=np.object_)


def spelled(field: str, declared: Collection[str], model: str) -> str:
    """The name that a model gives a field.

    Raises:
        BadRequestError: it has no such input.
    """
    for name in _SPELLINGS.get(field, (field,)):
        if name in declared:
            return name
    raise BadRequestError(f"model {model} has no input {field}; leave it out")


def call_seed(seed: int, generated: int, *, apart: bool) -> int:
    """Seed of one engine call of an answer that takes many, so that no two draw the same numbers.

    An engine begins its numbers anew with every request. The first call keeps the user's seed; the
    others are splitmix64 (Steele et al. 2014) of it and their place, as the server's BLS does it.

    Args:
        seed: the user's, 64 bits.
        generated: tokens of the answer before this call.
        apart: whether another call draws behind the same tokens.
    """
    if not generated and not apart:
        return seed
    mixed = (seed + (2 * generated + apart) * _GOLDEN) & _MASK
    mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _MASK
    return mixed ^ mixed >> 31
