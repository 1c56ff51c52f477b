"""The result of a verification, as status entry and as conditions."""

from typing import Any

from specdec import servers
from specdec.api.conditions import Condition, Type
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import VerificationReason
from specdec.api.speculation import LengthPolicy
from specdec.pipeline.job_results import Measured, parsed
from specdec.pipeline.stages import effect_advice

Entry = dict[str, Any]
_SOURCES = {"model": "the draft model", "lookup": "lookups", "memory": "texts of earlier requests"}


def entry(measured: Measured) -> Entry:
    """A Job's result in the fields of `status.speculation`."""
    return {**measured.shown(), "stale": False}


def last(model: SpeculativeModel) -> Entry | None:
    """The last result in the status, of the served revision or of an earlier one."""
    status = model.status.get("speculation", {})
    value = status.get("previous") if status.get("stale") else status
    measured = parsed(Measured, value)
    return None if measured is None else entry(measured)


def stale(old: Entry) -> Entry:
    """The status entry while the result does not count: its numbers appear only in `previous`."""
    head: Entry = {name: old[name] for name in ("measuredAt", "planHash") if name in old}
    return {**head, "stale": True, "previous": old}


def conditions(model: SpeculativeModel, result: Entry) -> tuple[Condition, ...]:
    """The three conditions that follow from a result."""
    return _active(model, result), _equivalent(result), _effective(model, result)


def _active(model: SpeculativeModel, result: Entry) -> Condition:
    kind, prompts = Type.SPECULATION_ACTIVE, result["prompts"]
    if result["active"]:
        return Condition(kind, "True", VerificationReason.DRAFT_TOKENS_OBSERVED, _counts(result))
    if "draftedTokens" not in result and "rounds" not in result:
        message = f"responses to {prompts} prompts have no draft counts: {_uncounted(model)}"
        return Condition(kind, "Unknown", VerificationReason.NOT_COMPARABLE, message)
    cause = "read the server's log and its metric specdec_fallback_total"
    policy = model.spec.speculation.length_policy
    if policy.type is LengthPolicy.ADAPTIVE and policy.min_length == 0:
        cause = "draftLengthPolicy Adaptive pauses drafting while the target alone is faster"
    if model.spec.speculation.draft_tokens == 0:
        cause = "spec.speculation.draftTokens is 0: raise it"
    elif "draftedTokens" not in result:
        cause = "every step of the engine gave one token: read the server's log"
    message = f"{prompts} prompts were answered without a draft token: {cause}"
    return Condition(kind, "False", VerificationReason.NO_DRAFT_TOKENS_OBSERVED, message)


def _uncounted(model: SpeculativeModel) -> str:
    counters = servers.of(model).counters
    if counters.engine and model.spec.speculation.block.in_engine:
        return "they are not streamed; set spec.serving.streaming to true to count steps"
    return counters.uncounted


def _counts(result: Entry) -> str:
    prompts = f"for {result['prompts']} prompts"
    length = result.get("tokensPerRound")
    if "draftedTokens" not in result:
        return f"{length} tokens per engine step {prompts}"
    text = (
        f"{result['acceptedTokens']} of {result['draftedTokens']} draft tokens accepted "
        f"({result.get('acceptancePercent', 0)} %) {prompts}"
    )
    text = f"{text}, {length} tokens per round" if length else text
    return f"{text}{_sources(result)}"


def _sources(result: Entry) -> str:
    """What each source drafted; empty with a single one."""
    sources = result.get("sources", [])
    if len(sources) < 2:
        return ""
    counts = [
        f"{source['acceptedTokens']} of {source['draftedTokens']} from {_SOURCES[source['name']]}"
        for source in sources
        if source["name"] in _SOURCES
    ]
    return f": {', '.join(counts)}"


def _equivalent(result: Entry) -> Condition:
    kind, prompts = Type.OUTPUT_EQUIVALENT, result["prompts"]
    matched = result.get("matched")
    if matched is None:
        return Condition(kind, "Unknown", VerificationReason.NOT_COMPARABLE, _no_baseline())
    failed = _failed(result)
    if matched < prompts:
        where = result.get("divergence", "an output differs")
        message = f"{matched} of {prompts} greedy outputs equal the target's own: {where}{failed}"
        return Condition(kind, "False", VerificationReason.DIVERGED, message)
    message = f"all {prompts} greedy outputs equal the target's own{failed}"
    return Condition(kind, "True", VerificationReason.EQUIVALENT, message)


def _failed(result: Entry) -> str:
    count = result.get("failed", 0)
    return f"; requests for {count} prompts failed: {result.get('failure', '')}" if count else ""


def _effective(model: SpeculativeModel, result: Entry) -> Condition:
    kind, spec = Type.SPECULATION_EFFECTIVE, model.spec.verification
    speed, acceptance = result.get("speedupPercent"), result.get("acceptancePercent")
    if acceptance is not None and acceptance < spec.min_acceptance_percent:
        message = (
            f"{acceptance} % of the draft tokens are accepted, below "
            f"spec.verification.minAcceptancePercent {spec.min_acceptance_percent}: "
            f"{effect_advice.acceptance(model)}"
        )
        return Condition(kind, "False", VerificationReason.LOW_ACCEPTANCE, message)
    if speed is None:
        return Condition(kind, "Unknown", VerificationReason.NOT_COMPARABLE, _no_baseline())
    text = f"single requests reach {speed} % of the speed of the target alone"
    if speed < spec.min_speedup_percent:
        message = (
            f"{text}, below spec.verification.minSpeedupPercent {spec.min_speedup_percent}: "
            f"{effect_advice.speed(model)}"
        )
        return Condition(kind, "False", VerificationReason.SLOWER_THAN_BASELINE, message)
    return Condition(kind, "True", VerificationReason.EFFECTIVE, text)


def _no_baseline() -> str:
    return (
        "the engine drafts by itself, and no request can turn that off: compare with a resource "
        "of method None"
    )
