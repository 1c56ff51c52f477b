"""Sampling parameters, and the input names that models and releases of Triton give them.

Every kind of request inherits from `Sampling`. It validates the values before a request is sent.
"""

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from specdec.servers.errors import BadRequestError
from specdec.servers.tensor import Tensor, tensor

Field = tuple[str, Tensor]

# Releases renamed some inputs, and an engine has other names than the models with text input.
_INPUT_NAMES = {
    "seed": ("seed", "random_seed"),
    "min_tokens": ("min_tokens", "min_length"),
    "top_k": ("top_k", "runtime_top_k"),
    "top_p": ("top_p", "runtime_top_p"),
    "length_penalty": ("length_penalty", "len_penalty"),
}
_NUMBERS: tuple[tuple[str, str], ...] = (
    ("temperature", "FP32"),
    ("top_k", "INT32"),
    ("top_p", "FP32"),
    ("seed", "UINT64"),
    ("min_tokens", "INT32"),
    ("beam_width", "INT32"),
    ("repetition_penalty", "FP32"),
    ("presence_penalty", "FP32"),
    ("frequency_penalty", "FP32"),
    ("length_penalty", "FP32"),
    ("end_id", "INT32"),
    ("pad_id", "INT32"),
)
_INT32 = 2**31
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
            is_valid, range_ = _RANGES.get(name, (math.isfinite, "a finite number"))
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
        """The numeric parameters that are set, as tensors of shape [1]."""
        for name, dtype in _NUMBERS:
            value = getattr(self, name)
            if value is not None:
                yield name, tensor(dtype, value)


def has_input(field: str, declared: Collection[str]) -> bool:
    """Whether a model has an input for a parameter."""
    return any(name in declared for name in _INPUT_NAMES.get(field, (field,)))


def input_name(field: str, declared: Collection[str], model: str) -> str:
    """The model's input name for a parameter.

    Raises:
        BadRequestError: the model has no such input.
    """
    for name in _INPUT_NAMES.get(field, (field,)):
        if name in declared:
            return name
    raise BadRequestError(f"model {model} has no input {field}; leave it out")
