"""One engine of a draft/target loop: prefix in, new tokens and their logits out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.client import tokenization
from specdec.client.errors import RefusedError
from specdec.client.grpc_calls import Calls, Tensors
from specdec.client.sampling import call_seed, spelled

_OUTPUTS: tuple[str, ...] = ("output_ids", "sequence_length")


@dataclass(frozen=True)
class Engine:
    """One engine model, with what does not change from round to round."""

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
        offered: Tensors,
        *,
        generated: int = 0,
        apart: bool = False,
        minimum: int,
        logits: bool,
    ) -> tuple[list[int], NDArray[Any] | None]:
        """At most `length` tokens behind `ids`, and their logits [length, vocabulary] if asked.

        Args:
            ids: prompt and answer so far.
            offered: further inputs of this call.
            generated: how many of `ids` are the answer's.
            apart: draw other numbers than a call that continues the same ids.
            minimum: tokens before the end may come.
        """
        tensors = {**self.common, **offered, **tokenization.prefix(ids, length)}
        if minimum > 0:
            name = spelled("min_tokens", self.declared, self.model)
            tensors[name] = np.array([[min(minimum, length)]], np.int32)
        if self.seed is not None:
            seed = call_seed(self.seed, generated, apart=apart)
            tensors[spelled("seed", self.declared, self.model)] = np.array([[seed]], np.uint64)
        outputs = _OUTPUTS
        if logits:
            tensors["return_generation_logits"] = np.array([[True]])
            outputs = (*outputs, "generation_logits")
        answer = await self.calls.call(self.model, tensors, outputs)
        new = tokenization.new(answer, len(ids), f"{self.model} at {self.url}")[:length]
        return new, self._logits(answer, len(new)) if logits else None

    def _logits(self, answer: Tensors, count: int) -> NDArray[Any]:
        found = answer.get("generation_logits")
        if found is None or not found.size:
            raise RefusedError(
                f"{self.model} at {self.url} returned no generation logits; "
                "build its engine with them, or ask without"
            )
        return found.reshape(-1, found.shape[-1])[:count]
