"""Judge an entry at its end: whether it passed, in one sentence, and how it compares.

`run` calls `judge`. It is pure: it uses the conditions of the resource and the results of the
load.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from specdec.api.condition_types import Type
from specdec.api.reasons import VerificationReason
from specdec.tools.certify.progress import State, conditions, judged

Json = dict[str, Any]
Outcome = Literal["passed", "failed"]
_NEAR_TIES = "on a GPU two tokens with nearly equal logits can swap, so check the difference first"


@dataclass(frozen=True)
class Verdict:
    """The outcome of an entry with its sentence, and the condition that decided."""

    outcome: Outcome
    sentence: str
    condition: tuple[str, str] | None = None


def judge(
    body: Mapping[str, Any],
    throughput: Mapping[str, Any] | None,
    baseline: Mapping[str, Any] | None,
    problem: State | str = "",
) -> Verdict:
    """The verdict on an entry whose resource is done.

    Args:
        body: the resource at its end.
        throughput: the operator's benchmark, or the result of the load; None if it failed or did
            not run.
        baseline: the result of the load of the baseline; None if there is none.
        problem: the state of a failed resource, or why the load failed.
    """
    if isinstance(problem, State):
        return Verdict("failed", problem.problem, problem.condition)
    present = conditions(body)
    for kind in (Type.READY, *judged(body)):
        verdict = _condition(kind, present.get(kind, {}))
        if verdict is not None:
            return verdict
    if problem or throughput is None:
        return Verdict("failed", problem or "the load has no result")
    failed = sum(level["failed"] for level in throughput["levels"])
    if failed:
        first = next(level["failure"] for level in throughput["levels"] if level["failed"])
        return Verdict("failed", f"{failed} requests of the load failed: {first}")
    same = equal_answers(throughput, baseline)
    # Answers of verified output may differ from those of another engine.
    verified = present.get(Type.OUTPUT_EQUIVALENT, {}).get("status") == "True"
    if same is not None and same[0] < same[1] and not verified:
        return Verdict(
            "failed",
            f"{same[1] - same[0]} of {same[1]} greedy answers differ from those of the baseline: "
            f"{_NEAR_TIES}",
        )
    return Verdict("passed", _summary(body, throughput, baseline))


def equal_answers(
    throughput: Mapping[str, Any] | None, baseline: Mapping[str, Any] | None
) -> tuple[int, int] | None:
    """How many answers of the load equal the baseline's, and of how many; None if unknown."""
    ours, theirs = ((load or {}).get("answers") for load in (throughput, baseline))
    if ours is None or theirs is None:
        return None
    pairs = list(zip(ours, theirs, strict=False))
    return sum(a == b for a, b in pairs), len(pairs)


def speeds(
    throughput: Mapping[str, Any] | None, baseline: Mapping[str, Any] | None
) -> dict[int, int]:
    """The tokens per second in percent of the target alone, by number of clients.

    The operator's benchmark has measured both on one server. Otherwise the target alone is the
    baseline.
    """
    others = baseline["levels"] if baseline else ()
    base = {level["concurrency"]: level["tokensPerSecond"] for level in others}
    result = {}
    for level in throughput["levels"] if throughput else ():
        clients = level["concurrency"]
        if "speedupPercent" in level:
            result[clients] = level["speedupPercent"]
        elif base.get(clients):
            result[clients] = round(100 * level["tokensPerSecond"] / base[clients])
    return result


def _condition(kind: Type, condition: Mapping[str, Any]) -> Verdict | None:
    """The verdict that follows from one condition; None if it allows a pass."""
    reason = condition.get("reason", "")
    if condition.get("status") == "True" or reason == VerificationReason.NOT_COMPARABLE:
        return None
    message = condition.get("message", "it is missing")
    return Verdict("failed", f"{kind} is {reason or 'missing'}: {message}", (kind, reason))


def _summary(
    body: Mapping[str, Any],
    throughput: Mapping[str, Any],
    baseline: Mapping[str, Any] | None,
) -> str:
    """The measurements of a passed entry in one sentence."""
    measured = body.get("status", {}).get("speculation", {})
    facts = []
    if measured.get("matched") is not None:
        facts.append(
            f"{measured['matched']} of {measured['prompts']} answers are the target's own"
        )
    if measured.get("acceptancePercent") is not None:
        facts.append(f"{measured['acceptancePercent']} % of the draft tokens are accepted")
    elif measured.get("tokensPerRound") is not None:
        facts.append(f"{measured['tokensPerRound']} tokens per step")
    same = equal_answers(throughput, baseline)
    if same is not None and measured.get("matched") is None:
        facts.append(f"{same[0]} of {same[1]} answers equal those of the baseline")
    fastest = max(level["tokensPerSecond"] for level in throughput["levels"])
    facts.append(f"up to {fastest:g} tokens/s")
    facts += [
        f"{percent} % of the baseline's speed with {_clients(count)}"
        for count, percent in speeds(throughput, baseline).items()
    ]
    return ", ".join(facts)


def _clients(count: int) -> str:
    return f"{count} client" if count == 1 else f"{count} clients"
