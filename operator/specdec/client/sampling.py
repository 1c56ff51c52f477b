"""Sampling parameters, and the input names that models and releases of Triton give them.

Every kind of request inherits from `Sampling`. It validates the values before a request is sent.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.client.errors import BadRequestError

Field = tuple[str, NDArray[Any]]

# Releases renamed some inputs, and an engine has other names than the models with text input.
_INPUT_NAMES = {
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
# The check of a value, and its range for messages.
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
    """How tokens are selected and when an answer ends; None applies the server's default.

    Attributes:
        temperature, top_k, top_p, seed: sampling; without them Triton's models decode greedily,
            and an OpenAI server may sample.
        min_tokens: minimum length of the answer.
        beam_width: number of beams; above 1 only without speculation.
        repetition_penalty, presence_penalty, frequency_penalty: against repetition.
        length_penalty: for beam search.
        end_id, pad_id: token ids that replace those of the tokenizer.
        stop_words: the first that occurs ends the answer, as in the engines.
        bad_words: never generated.
        bias_words, bias_weights: each weight is added to the logits of its word's tokens.

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
            is_valid, range_ = _RANGES.get(name, (np.isfinite, "a finite number"))
            if value is not None and not is_valid(value):
                raise BadRequestError(f"{name.replace('_', ' ')} is {value}; set it to {range_}")
        if len(self.bias_words) != len(self.bias_weights):
            raise BadRequestError(
                f"embedding bias has {len(self.bias_words)} words and "
                f"{len(self.bias_weights)} weights; give one weight for each word"
            )
        if "" in (*self.stop_words, *self.bad_words, *self.bias_words):
            raise BadRequestError("a stop, bad or bias word is empty; leave it out")

    @property
    def samples(self) -> bool:
        """Whether tokens are sampled instead of decoded greedily."""
        return any(value is not None for value in (self.temperature, self.top_k, self.top_p))

    def numbers(self) -> Iterator[Field]:
        """The numeric parameters that are set, as arrays of shape [1]."""
        for name, dtype in _NUMBERS:
            value = getattr(self, name)
            if value is not None:
                yield name, np.array([value], dtype)


def strings(values: Iterable[str]) -> NDArray[Any]:
    """An array [n] of UTF-8 bytes, as Triton's clients send strings."""
    return np.array([value.encode() for value in values], dtype=np.object_)


def input_name(field: str, declared: Collection[str], model: str) -> str:
    """The model's input name for a parameter.

    Raises:
        BadRequestError: the model has no such input.
    """
    for name in _INPUT_NAMES.get(field, (field,)):
        if name in declared:
            return name
    raise BadRequestError(f"model {model} has no input {field}; leave it out")


def call_seed(seed: int, generated: int, *, separate_draws: bool) -> int:
    """The seed of one engine call, so that no two calls of an answer use the same random numbers.

    An engine restarts its random numbers with every request. The first call uses the user's seed,
    unless `separate_draws` is set. Other seeds are splitmix64 (Steele et al. 2014) of that seed
    and the position, as in the BLS.

    Args:
        seed: the user's, 64 bits.
        generated: tokens of the answer before this call.
        separate_draws: this call uses other random numbers than another call that continues the
            same tokens.
    """
    if not generated and not separate_draws:
        return seed
    mixed = (seed + (2 * generated + separate_draws) * _GOLDEN) & _MASK
    mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _MASK
    return mixed ^ mixed >> 31
