"""What one prompt asks for, and the engine inputs that follow from it. NumPy only, no Triton."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15

# What only the target takes and every call may repeat. Not so a grammar, which begins anew with
# every call, nor logits and figures of a whole call.
_PER_TOKEN = frozenset(
    {
        "lora_task_id",
        "lora_weights",
        "lora_config",
        "prompt_embedding_table",
        "prompt_vocab_size",
    }
)

Tensors = dict[str, NDArray[Any]]
Cancelled = Callable[[], bool]


class EngineError(RuntimeError):
    """The draft or the target refused a call; the message is its own sentence."""


class EngineGoneError(EngineError):
    """The process of an engine died; the same request may succeed when the server is back."""


class Engine(Protocol):
    """A served model: the target or the draft."""

    def call(self, inputs: Tensors, outputs: Sequence[str]) -> Tensors:
        """One whole answer.

        Raises:
            EngineError: the model refused.
        """


@dataclass(frozen=True)
class Task:
    """One prompt and how it is to be continued.

    Attributes:
        prompt: token ids.
        max_tokens: new tokens at most.
        draft_tokens: draft tokens a round; 0 takes the plain path.
        adaptive: the server's policy may choose another length than that.
        min_tokens: the user's own minimum.
        end_id: the token that ends an answer, -1 for none.
        stop_words: token ids of each stop word; the answer ends with the first one in it.
        stop_texts: the same words as text, for those that do not lie on token borders.
        stream: an answer in parts.
        exclude_input: the text of a whole answer leaves the prompt out.
        common: inputs of every call to either engine: sampling, end, words, bias.
        seed: of a sampled answer; every call gets one of its own that follows from it. None where
            nothing is drawn.
        seed_name: how this release spells it.
        plain: inputs that only the plain path carries on to the target.
        input_count, output_count: every response says how many tokens the prompt has, and how
            many the response itself.
        outputs: further outputs of the target that the plain path hands on.
        min_name: how this release spells the minimum length.
    """

    prompt: tuple[int, ...]
    max_tokens: int
    draft_tokens: int = 0
    adaptive: bool = False
    min_tokens: int = 0
    end_id: int = -1
    stop_words: tuple[tuple[int, ...], ...] = ()
    stop_texts: tuple[str, ...] = ()
    use_draft_logits: bool = False
    stream: bool = False
    exclude_input: bool = False
    log_probs: bool = False
    statistics: bool = False
    input_count: bool = False
    output_count: bool = False
    common: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    seed: int | None = None
    seed_name: str = "random_seed"
    plain: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    min_name: str = "min_length"

    @property
    def undivided(self) -> bool:
        """Whether what is asked of the target alone has no meaning over several engine calls."""
        return any(name not in _PER_TOKEN for name in self.plain)

    def inputs(
        self, ids: NDArray[np.int32], new_tokens: int, min_tokens: int, *, apart: bool = False
    ) -> Tensors:
        """Inputs of one engine call: `ids` is the whole prefix, [1, tokens].

        Args:
            apart: draw other numbers than a call that continues the same prefix.
        """
        tensors = dict(self.common)
        if self.seed is not None:
            seed = call_seed(self.seed, ids.size - len(self.prompt), apart=apart)
            tensors[self.seed_name] = np.array([[seed]], np.uint64)
        tensors["input_ids"] = ids
        tensors["input_lengths"] = np.array([[ids.size]], np.int32)
        tensors["request_output_len"] = np.array([[new_tokens]], np.int32)
        if min_tokens > 0:
            tensors[self.min_name] = np.array([[min_tokens]], np.int32)
        return tensors


def call_seed(seed: int, generated: int, *, apart: bool) -> int:
    """Seed of one engine call, so that no two calls of an answer draw the same numbers.

    TensorRT-LLM begins its numbers anew with every request, the rounds' too. The first call keeps
    the user's seed; the others are splitmix64 (Steele et al. 2014) of it and their place.

    Args:
        seed: the user's, 64 bits.
        generated: tokens of the answer before this call.
        apart: whether this is the draft's call of a round in which the target draws as well.
    """
    if not generated and not apart:
        return seed
    mixed = (seed + (2 * generated + apart) * _GOLDEN) & _MASK
    mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _MASK
    return mixed ^ mixed >> 31


class Prefix:
    """Prompt and answer so far as one growing array, so that a round copies only what is new.

    Args:
        prompt: token ids.
    """

    def __init__(self, prompt: Sequence[int]) -> None:
        self._ids = np.empty((1, 2 * len(prompt) + 64), np.int32)
        self._ids[0, : len(prompt)] = prompt
        self.size = len(prompt)

    def append(self, token: int) -> None:
        """One more token; what `ids` gave before keeps its values."""
        if self.size == self._ids.shape[1]:
            self._ids = np.concatenate([self._ids, np.empty_like(self._ids)], axis=1)
        self._ids[0, self.size] = token
        self.size += 1

    @property
    def ids(self) -> NDArray[np.int32]:
        """All tokens, [1, size]."""
        return self._ids[:, : self.size]


def new_tokens(answer: Tensors, skip: int, model: str) -> list[int]:
    """Tokens of beam 0 behind the first `skip`, which are the prefix that was sent.

    Raises:
        EngineError: the answer is shorter than the prefix, so nothing behind it can be found.
    """
    length = int(answer["sequence_length"].reshape(-1)[0])
    if length < skip:
        raise EngineError(
            f"{model} answered {length} tokens to a prefix of {skip}: "
            "set its parameter exclude_input_in_output to false"
        )
    # [1, beams, T]; T is 0 where a stream ends without a last token.
    tokens: list[int] = answer["output_ids"][0, 0, skip:length].tolist()
    return tokens


def token_log_probs(answer: Tensors, count: int) -> list[float]:
    """Log probabilities of the first `count` new tokens of beam 0, fewer where none came."""
    values = answer.get("output_log_probs")
    if values is None or not values.size:
        return []
    return [float(value) for value in values[0, 0, :count]]
