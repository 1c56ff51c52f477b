"""The settings of a benchmark, validated before a request is sent.

`specdec bench` and the benchmark Job create `Settings` and pass them to `measure`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from specdec.client.errors import BadRequestError
from specdec.triton.model_names import BLS

# Prompts of several kinds, because acceptance depends on the text. They give a first impression;
# the prompts of the real service are more representative.
PROMPTS = (
    "def read_lines(path):\n",
    "class Stack:\n    def __init__(self):\n",
    "import argparse\n\n\ndef main():\n",
    "The three laws of thermodynamics say that",
    "Write a short letter to a customer whose parcel is late.\n",
    "Question: What is the capital of France, and what is it known for?\nAnswer:",
    "Once upon a time there was a lighthouse keeper who",
    "SELECT customers.name, COUNT(orders.id)\nFROM customers\n",
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A sweep over numbers of concurrent clients, each measured with and without speculation.

    Attributes:
        prompts: texts; request n of every arm uses prompt n modulo their number.
        model: name of a model that takes text; empty selects the only one of an OpenAI endpoint.
        baseline_model: name of the baseline's model, if it has its own server.
        single: measure speculation only, without a baseline.
        concurrency: numbers of concurrent clients, one level each.
        requests: per arm and level; at least one per client is sent.
        output_tokens: exact length of every answer, because the end token is disabled.
        draft_tokens: draft lengths, one speculative arm each; None is the server's default.
        warmup: requests per arm before a level, at least one per client; 0 for none.
        seed: request n of every arm samples with seed + n; also the seed of the bootstrap.
        error_limit_percent: maximum error rate of a successful run.
        confidence_percent: of the intervals around speed-ups.
        resamples: of the bootstrap.

    Raises:
        BadRequestError: an invalid value.
    """

    prompts: Sequence[str] = PROMPTS
    model: str = BLS
    baseline_model: str = BLS
    single: bool = False
    concurrency: Sequence[int] = (1,)
    requests: int = 24
    output_tokens: int = 128
    draft_tokens: Sequence[int | None] = (None,)
    warmup: int = 1
    seed: int = 0
    error_limit_percent: float = 1.0
    confidence_percent: float = 95.0
    resamples: int = 2000

    def __post_init__(self) -> None:
        if not self.prompts or "" in self.prompts:
            raise BadRequestError("there is no prompt, or an empty one; give at least one text")
        for name, values, minimum in (
            ("concurrency", self.concurrency, 1),
            ("draft tokens", [length for length in self.draft_tokens if length is not None], 1),
            ("requests", (self.requests,), 1),
            ("output tokens", (self.output_tokens,), 1),
            ("warm-up", (self.warmup,), 0),
            ("seed", (self.seed,), 0),
            ("resamples", (self.resamples,), 100),
        ):
            for value in values:
                if value < minimum:
                    raise BadRequestError(f"{name} is {value}; set it to {minimum} or more")
        for name, selected in (
            ("concurrency", self.concurrency),
            ("draft tokens", self.draft_tokens),
        ):
            if not selected or len(set(selected)) < len(selected):
                raise BadRequestError(f"{name} needs distinct values; give for example 4")
        if not 0 <= self.error_limit_percent <= 100:
            raise BadRequestError(
                f"error limit is {self.error_limit_percent:g} %; set it between 0 and 100"
            )
        if not 0 < self.confidence_percent < 100:
            raise BadRequestError(
                f"confidence is {self.confidence_percent:g} %; set it between 0 and 100, like 95"
            )

    @property
    def arms(self) -> tuple[int | None, ...]:
        """The draft lengths of all arms; the first one is 0, the baseline, if there is one."""
        return tuple(self.draft_tokens) if self.single else (0, *self.draft_tokens)

    def requests_at(self, concurrency: int) -> int:
        """The number of requests per arm at a level."""
        return max(self.requests, concurrency)
