"""The result of a verification: the outcome of each prompt, and the summary of a data set.

`verification` creates a `Comparison` per prompt and calls `summary`. `specdec verify` and the
verification Job report the resulting `Verification`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from specdec.client.dataset import Entry
from specdec.client.decoding_paths import PathAnswer
from specdec.client.divergence import Divergence, divergence, equal
from specdec.client.grpc_calls import Server
from specdec.client.metrics import SourceTotals, SpeculationTotals

Kind = Literal["refused", "bad_request", "unreachable"]


@dataclass(frozen=True)
class Failure:
    """A prompt that was not compared.

    Attributes:
        prompt_index: index in the data set, from 0.
        sentence: the error message.
        kind: of the error.
    """

    prompt_index: int
    sentence: str
    kind: Kind


@dataclass(frozen=True)
class Verification:
    """The summary of a data set; it is partial if a server became unreachable.

    Attributes:
        prompts: number of prompts.
        matched: number of prompts with equal answers.
        different: number of prompts with different answers.
        divergence: the first difference, in the order of the data set.
        failures: prompts that were not compared.
        draft_tokens, accepted_tokens: of the verified answers; None if the server reports them
            neither in its answers nor in its metrics.
        rounds: number of rounds with a draft; None if not reported.
        sources: draft tokens by source, from the server's counters; empty without them.
        compared: by token ids, or by text if an answer has no ids.
    """

    prompts: int
    matched: int
    different: int
    divergence: Divergence | None = None
    failures: tuple[Failure, ...] = ()
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    rounds: int | None = None
    sources: tuple[SourceTotals, ...] = ()
    compared: Literal["tokens", "text"] = "text"

    @property
    def acceptance_percent(self) -> float | None:
        """The share of accepted draft tokens; None without draft tokens or counts."""
        if not self.draft_tokens or self.accepted_tokens is None:
            return None
        return 100 * self.accepted_tokens / self.draft_tokens

    @property
    def tokens_per_round(self) -> float | None:
        """Accepted tokens per round plus the target's own token; None without rounds."""
        if not self.rounds or self.accepted_tokens is None:
            return None
        return 1 + self.accepted_tokens / self.rounds

    @property
    def exit_status(self) -> int:
        """0: all equal; 1: a difference; 2: a prompt failed; 3: the server became unreachable."""
        if self.different:
            return 1
        if any(failure.kind == "unreachable" for failure in self.failures):
            return 3
        return 2 if self.failures else 0

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every attribute, acceptance_percent and tokens_per_round."""
        result = asdict(self)
        result["failures"] = list(result["failures"])
        result["sources"] = list(result["sources"])
        return {
            **result,
            "acceptance_percent": self.acceptance_percent,
            "tokens_per_round": self.tokens_per_round,
        }


@dataclass(frozen=True)
class Comparison:
    """The outcome of one prompt.

    Attributes:
        index: of the prompt in the data set.
        expected, got: the answers of baseline and verified path; None with `failure`.
        failure: why the prompt was not compared.
    """

    index: int
    expected: PathAnswer | None = None
    got: PathAnswer | None = None
    failure: Failure | None = None

    @property
    def matched(self) -> bool:
        """Whether both answers exist and are equal."""
        return self.pair is not None and equal(*self.pair)

    @property
    def pair(self) -> tuple[PathAnswer, PathAnswer] | None:
        """Both answers, or None if the prompt was not compared."""
        if self.expected is None or self.got is None:
            return None
        return self.expected, self.got


async def summary(
    entries: Sequence[Entry],
    outcomes: Sequence[Comparison],
    server: Server | None,
    counted: SpeculationTotals | None,
) -> Verification:
    """Summarize the outcomes of a data set.

    Args:
        entries: the data set.
        outcomes: one per entry, in the same order.
        server: that has the tokenizer; None without one.
        counted: the verified server's counters for this run, if they can be read.
    """
    pairs = [outcome.pair for outcome in outcomes if outcome.pair is not None]
    different = [
        outcome for outcome in outcomes if outcome.pair is not None and not outcome.matched
    ]
    first = None
    if different and different[0].pair is not None:
        index = different[0].index
        first = await divergence(server, index, entries[index].prompt, *different[0].pair)
    by_ids = bool(pairs) and all(answer.ids is not None for pair in pairs for answer in pair)
    return Verification(
        prompts=len(entries),
        matched=sum(outcome.matched for outcome in outcomes),
        different=len(different),
        divergence=first,
        failures=tuple(outcome.failure for outcome in outcomes if outcome.failure is not None),
        **_counts([got for _, got in pairs], counted),
        sources=counted.sources if counted else (),
        compared="tokens" if by_ids else "text",
    )


def _counts(
    answers: Sequence[PathAnswer], counted: SpeculationTotals | None
) -> dict[str, int | None]:
    """The counts that the answers report, or else those of the server's counters."""
    reported = [answer.counts for answer in answers if answer.counts is not None]
    rounds = [answer.rounds for answer in answers if answer.rounds is not None]
    result: dict[str, int | None] = {
        "draft_tokens": None,
        "accepted_tokens": None,
        "rounds": None,
    }
    if counted is not None:
        result["draft_tokens"], result["accepted_tokens"] = counted.drafted, counted.accepted
        result["rounds"] = counted.rounds
    if reported:
        result["draft_tokens"] = sum(counts.drafted for counts in reported)
        result["accepted_tokens"] = sum(counts.accepted for counts in reported)
    if rounds:
        result["rounds"] = sum(rounds)
    return result
