"""What a verification found: as the status keeps it, and as conditions say it."""

from typing import Any

from specdec.api.conditions import Condition, Type
from specdec.api.model import Method, SpeculativeModel
from specdec.api.speculation import LengthPolicy
from specdec.pipeline.job_results import Measured, parsed

Entry = dict[str, Any]


def entry(told: Measured) -> Entry:
    """What a Job left, in the fields of `status.speculation`."""
    return {**told.shown(), "stale": False}


def last(model: SpeculativeModel) -> Entry | None:
    """The last measurement that the status knows, whether or not it is of what serves now."""
    found = model.status.get("speculation", {})
    old = found.get("previous") if found.get("stale") else found
    told = parsed(Measured, old)
    return None if told is None else entry(told)


def stale(old: Entry) -> Entry:
    """A measurement of what does not serve: its numbers are nowhere where current ones stand."""
    head: Entry = {name: old[name] for name in ("measuredAt", "planHash") if name in old}
    return {**head, "stale": True, "previous": old}


def conditions(model: SpeculativeModel, found: Entry) -> tuple[Condition, ...]:
    """The three statements that a measurement allows."""
    return _active(model, found), _equivalent(found), _effective(model, found)


def _active(model: SpeculativeModel, found: Entry) -> Condition:
    kind, prompts = Type.SPECULATION_ACTIVE, found["prompts"]
    if found["active"]:
        return Condition(kind, "True", "DraftTokensObserved", _seen(found))
    if "draftedTokens" not in found and "rounds" not in found:
        message = f"{prompts} prompts were answered, and nobody tells drafts: {_untold(model)}"
        return Condition(kind, "Unknown", "NotComparable", message)
    cause = "read the server's log and its metric specdec_fallback_total"
    policy = model.spec.speculation.draft_length_policy
    if policy is not None and policy.type is LengthPolicy.ADAPTIVE and policy.min_length == 0:
        cause = "draftLengthPolicy Adaptive lets the draft rest while the target alone is faster"
    if model.spec.speculation.draft_tokens == 0:
        cause = "spec.speculation.draftTokens is 0: raise it"
    elif "draftedTokens" not in found:
        cause = "every step of the engine gave one token: read the server's log"
    message = f"{prompts} prompts were answered without a draft token: {cause}"
    return Condition(kind, "False", "NoDraftTokensObserved", message)


def _untold(model: SpeculativeModel) -> str:
    if model.spec.speculation.method is not Method.DRAFT_TARGET:
        return "answers come at once: set spec.serving.streaming to true, to see steps"
    return (
        "answers of this spec.runtime.version do not, and counters can be read through the "
        "Service of one pod alone: set the version to 0.19.0 or later"
    )


def _seen(found: Entry) -> str:
    prompts = f"for {found['prompts']} prompts"
    length = found.get("tokensPerRound")
    if "draftedTokens" not in found:
        return f"{length} tokens a step of the engine {prompts}"
    text = (
        f"{found['acceptedTokens']} of {found['draftedTokens']} draft tokens accepted "
        f"({found.get('acceptancePercent', 0)} %) {prompts}"
    )
    return f"{text}, {length} tokens a round" if length else text


def _equivalent(found: Entry) -> Condition:
    kind, prompts = Type.OUTPUT_EQUIVALENT, found["prompts"]
    matched = found.get("matched")
    if matched is None:
        return Condition(kind, "Unknown", "NotComparable", _no_baseline())
    failed = _failed(found)
    if matched < prompts:
        where = found.get("divergence", "an answer differs")
        message = f"{matched} of {prompts} greedy answers are the target's own: {where}{failed}"
        return Condition(kind, "False", "Diverged", message)
    message = f"all {prompts} greedy answers are the target's own{failed}"
    return Condition(kind, "True", "Equivalent", message)


def _failed(found: Entry) -> str:
    count = found.get("failed", 0)
    return f"; {count} prompts have no answer: {found.get('failure', '')}" if count else ""


def _effective(model: SpeculativeModel, found: Entry) -> Condition:
    kind, spec = Type.SPECULATION_EFFECTIVE, model.spec.verification
    speed, acceptance = found.get("speedupPercent"), found.get("acceptancePercent")
    if acceptance is not None and acceptance < spec.min_acceptance_percent:
        message = (
            f"{acceptance} % of the draft tokens are accepted, below "
            f"spec.verification.minAcceptancePercent {spec.min_acceptance_percent}: choose a "
            "draft closer to the target, or lower spec.speculation.draftTokens"
        )
        return Condition(kind, "False", "LowAcceptance", message)
    if speed is None:
        return Condition(kind, "Unknown", "NotComparable", _no_baseline())
    words = f"answers take {100 / max(speed, 1):.2f} times the target's own time, one at a time"
    if speed < spec.min_speedup_percent:
        message = (
            f"{words}: {speed} % of its speed, below spec.verification.minSpeedupPercent "
            f"{spec.min_speedup_percent}: lower spec.speculation.draftTokens, choose a faster "
            "draft, or let draftLengthPolicy Adaptive rest it"
        )
        return Condition(kind, "False", "SlowerThanBaseline", message)
    return Condition(kind, "True", "Effective", f"{words}: {speed} % of its speed")


def _no_baseline() -> str:
    return (
        "the engine drafts by itself and no request can turn that off: compare with a resource of "
        "method None"
    )
