"""What a verification found: outcomes of single prompts, and what they come to."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from specdec.client.dataset import Entry
from specdec.client.decoding_paths import PathAnswer
from specdec.client.divergence import Divergence, divergence, equal
from specdec.client.grpc_calls import Server
from specdec.client.metrics import SpeculationTotals

Kind = Literal["refused", "bad_request", "unreachable"]


@dataclass(frozen=True)
class Failure:
    """A prompt that was not compared.

    Attributes:
        prompt_index: its place in the data set, from 0.
        sentence: why.
        kind: whose fault it is.
    """

    prompt_index: int
    sentence: str
    kind: Kind


@dataclass(frozen=True)
class Verification:
    """What a data set showed; a server that went away leaves what was compared before.

    Attributes:
        prompts: how many were given.
        matched: had equal answers.
        different: had not.
        divergence: the first of the different, in the data set's order.
        failures: prompts without an answer to compare.
        draft_tokens, accepted_tokens: of the verified answers; None where the server tells neither
            with its answers nor in its metrics.
        rounds: those with a draft; None where nobody tells.
        compared: by token ids, or by text where an answer has no ids.
    """

    prompts: int
    matched: int
    different: int
    divergence: Divergence | None = None
    failures: tuple[Failure, ...] = ()
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    rounds: int | None = None
    compared: Literal["tokens", "text"] = "text"

    @property
    def acceptance_percent(self) -> float | None:
        """Accepted of the draft tokens; None where none were drafted or nobody tells."""
        if not self.draft_tokens or self.accepted_tokens is None:
            return None
        return 100 * self.accepted_tokens / self.draft_tokens

    @property
    def tokens_per_round(self) -> float | None:
        """Accepted tokens and the target's own one; None without rounds."""
        if not self.rounds or self.accepted_tokens is None:
            return None
        return 1 + self.accepted_tokens / self.rounds

    @property
    def exit_status(self) -> int:
        """0 all equal, 1 a difference, 3 the server went away, 2 a prompt could not be asked."""
        if self.different:
            return 1
        if any(failure.kind == "unreachable" for failure in self.failures):
            return 3
        return 2 if self.failures else 0

    def to_json(self) -> dict[str, Any]:
        """Every attribute under its name, with the two shares; JSON's own types alone."""
        told = asdict(self)
        told["failures"] = list(told["failures"])
        return {
            **told,
            "acceptance_percent": self.acceptance_percent,
            "tokens_per_round": self.tokens_per_round,
        }


@dataclass(frozen=True)
class Comparison:
    """One prompt's outcome, as `tell` gets it.

    Attributes:
        index: the prompt's place in the data set.
        expected, got: the answers; None with `failure`.
        failure: why there is nothing to compare.
    """

    index: int
    expected: PathAnswer | None = None
    got: PathAnswer | None = None
    failure: Failure | None = None

    @property
    def matched(self) -> bool:
        """Both answers are there and equal."""
        return self.pair is not None and equal(*self.pair)

    @property
    def pair(self) -> tuple[PathAnswer, PathAnswer] | None:
        """Expected and got, where both are there."""
        if self.expected is None or self.got is None:
            return None
        return self.expected, self.got


async def summary(
    entries: Sequence[Entry],
    outcomes: Sequence[Comparison],
    server: Server,
    counted: SpeculationTotals | None,
) -> Verification:
    """What the outcomes of a data set come to.

    Args:
        entries: the data set.
        outcomes: one for each entry, in its order.
        server: turns text into tokens.
        counted: by the verified server meanwhile, for what the answers do not tell.
    """
    pairs = [one.pair for one in outcomes if one.pair is not None]
    different = [one for one in outcomes if one.pair is not None and not one.matched]
    first = None
    if different and different[0].pair is not None:
        index = different[0].index
        first = await divergence(server, index, entries[index].prompt, *different[0].pair)
    by_ids = bool(pairs) and all(said.ids is not None for pair in pairs for said in pair)
    return Verification(
        prompts=len(entries),
        matched=sum(one.matched for one in outcomes),
        different=len(different),
        divergence=first,
        failures=tuple(one.failure for one in outcomes if one.failure is not None),
        **_counts([got for _, got in pairs], counted),
        compared="tokens" if by_ids else "text",
    )


def _counts(
    answers: Sequence[PathAnswer], counted: SpeculationTotals | None
) -> dict[str, int | None]:
    told = [said.counts for said in answers if said.counts is not None]
    rounds = [said.rounds for said in answers if said.rounds is not None]
    found: dict[str, int | None] = {"draft_tokens": None, "accepted_tokens": None, "rounds": None}
    if counted is not None:
        found["draft_tokens"], found["accepted_tokens"] = counted.drafted, counted.accepted
        found["rounds"] = counted.rounds
    if told:
        found["draft_tokens"] = sum(counts.drafted for counts in told)
        found["accepted_tokens"] = sum(counts.accepted for counts in told)
    if rounds:
        found["rounds"] = sum(rounds)
    return found
