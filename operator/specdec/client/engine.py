"""Calls to one engine model: token ids in, new token ids and their logits out.

The client's draft/target loop (`speculate`) and the target-only path (`decoding_paths`) use it.
`common` holds the inputs that do not change, so that a round adds only its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.client import tokenization
from specdec.client.errors import RefusedError
from specdec.client.grpc_calls import Calls, Tensors
from specdec.servers.sampling import input_name

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_OUTPUTS: tuple[str, ...] = ("output_ids", "sequence_length")


@dataclass(frozen=True)
class Engine:
    """One engine model, with the inputs that are the same in every round.

    Attributes:
        calls: the connection.
        model: Triton name.
        url: of the server, for messages.
        declared: names of the model's inputs.
        common: inputs that every call sends.
        seed: of the answer; None for greedy decoding.
    """

    calls: Calls
    model: str
    url: str
    declared: frozenset[str]
    common: Tensors
    seed: int | None = None

    async def new(
        self,
        ids: Sequence[int],
        length: int,
        extra: Tensors,
        *,
        generated: int = 0,
        separate_draws: bool = False,
        minimum: int,
        logits: bool,
    ) -> tuple[list[int], NDArray[Any] | None]:
        """Generate at most `length` tokens after `ids`.

        Args:
            ids: prompt and answer so far.
            length: maximum of new tokens.
            extra: additional inputs of this call.
            generated: how many of `ids` belong to the answer.
            separate_draws: use other random numbers than another call with the same `ids`.
            minimum: number of tokens before the end token is allowed.
            logits: return the logits too.

        Returns:
            The new tokens, and their logits [length, vocabulary] if requested.
        """
        tensors = {**self.common, **extra, **tokenization.prefix(ids, length)}
        if minimum > 0:
            name = input_name("min_tokens", self.declared, self.model)
            tensors[name] = np.array([[min(minimum, length)]], np.int32)
        if self.seed is not None:
            seed = call_seed(self.seed, generated, separate_draws=separate_draws)
            tensors[input_name("seed", self.declared, self.model)] = np.array([[seed]], np.uint64)
        outputs = _OUTPUTS
        if logits:
            tensors["return_generation_logits"] = np.array([[True]])
            outputs = (*outputs, "generation_logits")
        answer = await self.calls.call(self.model, tensors, outputs)
        new = tokenization.new_tokens(answer, len(ids), f"{self.model} at {self.url}")[:length]
        return new, self._logits(answer, len(new)) if logits else None

    def _logits(self, answer: Tensors, count: int) -> NDArray[Any]:
        logits = answer.get("generation_logits")
        if logits is None or not logits.size:
            raise RefusedError(
                f"{self.model} at {self.url} returned no generation logits; "
                "build its engine with them, or do not request them"
            )
        return logits.reshape(-1, logits.shape[-1])[:count]


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
