"""What a benchmark asks for, checked before anything is sent."""

from collections.abc import Sequence
from dataclasses import dataclass

from specdec.client.errors import BadRequestError

BLS = "tensorrt_llm_bls"

# Texts of several kinds, since acceptance depends on what is written; for a first look. What a
# service is really asked is the better measure.
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
    """A sweep over numbers of clients, each measured with and without speculation.

    Attributes:
        prompts: texts; request n of every arm continues prompt n modulo their number.
        model: Triton name of a model with the input num_draft_tokens.
        concurrency: numbers of clients at once, one level each.
        requests: of each arm at each level; at least as many as there are clients are sent.
        output_tokens: every answer has exactly so many: its end token is switched off.
        draft_tokens: draft lengths, one speculative arm each; None is what the server chooses for
            a client that does not say.
        warmup: requests of each arm before a level is timed, at least one a client; 0 for none.
        seed: request n is sampled with seed + n in every arm, and seeds the bootstrap.
        error_limit_percent: the run failed when more than this share of its requests did.
        confidence_percent: of the intervals around speed-ups.
        resamples: of the bootstrap.

    Raises:
        BadRequestError: a value no run could use.
    """

    prompts: Sequence[str] = PROMPTS
    model: str = BLS
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
        for name, values, least in (
            ("concurrency", self.concurrency, 1),
            ("draft tokens", [one for one in self.draft_tokens if one is not None], 1),
            ("requests", (self.requests,), 1),
            ("output tokens", (self.output_tokens,), 1),
            ("warm-up", (self.warmup,), 0),
            ("seed", (self.seed,), 0),
            ("resamples", (self.resamples,), 100),
        ):
            for value in values:
                if value < least:
                    raise BadRequestError(f"{name} is {value}; set it to {least} or more")
        for name, chosen in (
            ("concurrency", self.concurrency),
            ("draft tokens", self.draft_tokens),
        ):
            if not chosen or len(set(chosen)) < len(chosen):
                raise BadRequestError(
                    f"{name} needs values, each of them once; give for example 4"
                )
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
        """Draft lengths of all arms; the baseline, which is 0, comes first."""
        return (0, *self.draft_tokens)

    def sent(self, concurrency: int) -> int:
        """Requests of each arm at a level."""
        return max(self.requests, concurrency)
