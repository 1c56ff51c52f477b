"""Whether trained heads fit their target, for all methods with heads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from specdec.api.checkpoint_facts import NO_FACTS, CheckpointFacts
from specdec.api.matrix import support
from specdec.api.model import Method, SpeculativeModel
from specdec.api.reasons import CompatibilityReason, Reason
from specdec.backends.finding import Finding, differ
from specdec.backends.rule import version


def quantized(model: SpeculativeModel) -> str:
    """The target's quantization as the start of a sentence; empty without any."""
    own = model.spec.target.quantization
    if (own.method, own.kv_cache) == ("None", "Auto"):
        return ""
    return f"quantization of the target is {own.method} with cache {own.kv_cache}"


def architectures(model: SpeculativeModel) -> tuple[str, ...]:
    """The target architectures that are known to work with the method's heads."""
    row = support(model.spec.runtime.backend)
    return row.method_architectures.get(model.spec.speculation.method, row.architectures)


@dataclass(frozen=True)
class Fit:
    """Whether heads fit their target.

    `facts` are those of the heads, none where nothing more can be judged from them.
    """

    findings: tuple[Finding, ...] = ()
    facts: CheckpointFacts = NO_FACTS


def fit(
    model: SpeculativeModel,
    facts: Mapping[str, CheckpointFacts],
    able: tuple[str, ...] | None = None,
) -> Fit:
    """Judge target and heads; `able` are the architectures that heads can be built into."""
    if not {"target", "heads"} <= facts.keys():
        return Fit()
    target, heads = facts["target"], facts["heads"]
    findings = list(_target(model, target, architectures(model) if able is None else able))
    method, trained_for = model.spec.speculation.method, heads.method
    if trained_for is not None and trained_for != method:
        other = finding(
            CompatibilityReason.HEADS_METHOD_MISMATCH,
            f"the heads are made for {trained_for} and spec.speculation.method is {method}: "
            f"choose heads made for {method}, or another method",
        )
        return Fit((*findings, other))
    return Fit((*findings, *_sizes(target, heads)), heads)


def eagle3(model: SpeculativeModel, facts: Mapping[str, CheckpointFacts]) -> Iterator[Finding]:
    """The findings of EAGLE-3 heads; also compares their draft vocabulary with the target's.

    Heads may be narrower than the states of the target that they read.
    """
    compared = dict(facts)
    if own := facts.get("heads"):
        read = own.target_hidden_size or own.hidden_size
        compared["heads"] = own.updated(CheckpointFacts(hidden_size=read))
    judged = fit(model, compared)
    yield from judged.findings
    drafted, known = judged.facts.draft_vocab_size, facts.get("target", NO_FACTS).vocab_size
    if drafted is not None and known is not None and drafted > known:
        yield finding(
            CompatibilityReason.HEADS_VOCAB_SIZE_MISMATCH,
            f"the heads draft from {drafted} tokens and the target has {known}: choose heads "
            "trained on this target",
        )


def finding(code: Reason, message: str) -> Finding:
    """A finding about the heads."""
    return Finding(code, message, "heads", "heads")


def _target(
    model: SpeculativeModel, target: CheckpointFacts, able: tuple[str, ...]
) -> Iterator[Finding]:
    architecture, method = target.architecture, model.spec.speculation.method
    row = support(model.spec.runtime.backend)
    if architecture is None or architecture in able:
        return
    if not row.tries_others:
        yield finding(
            CompatibilityReason.TARGET_ARCHITECTURE_MISMATCH,
            f"method {method} has heads for {', '.join(able)} and the "
            f"target is {architecture}: choose another target{_other_method(model, architecture)}",
        )
    elif architecture in row.architectures:
        yield Finding(
            CompatibilityReason.TARGET_ARCHITECTURE_MISMATCH,
            f"method {method} is known to work with {', '.join(able)} and the target is "
            f"{architecture}: set spec.checks.architecture to Warn or Disabled to try it, or "
            f"choose another target{_other_method(model, architecture)}",
            "architecture",
            "heads",
        )


def _other_method(model: SpeculativeModel, architecture: str) -> str:
    """The end of a sentence: methods that need no heads; empty if nothing serves the target."""
    row = support(model.spec.runtime.backend)
    if architecture not in row.architectures:
        return ""
    able = [
        name for name in (Method.DRAFT_TARGET, Method.N_GRAM) if row.serves(name, version(model))
    ]
    return f", or method {' or '.join(able)}" if able else ""


def _sizes(target: CheckpointFacts, heads: CheckpointFacts) -> Iterator[Finding]:
    for code, name, known, own in (
        (
            CompatibilityReason.HEADS_HIDDEN_SIZE_MISMATCH,
            "hidden size",
            target.hidden_size,
            heads.hidden_size,
        ),
        (
            CompatibilityReason.HEADS_VOCAB_SIZE_MISMATCH,
            "vocabulary size",
            target.vocab_size,
            heads.vocab_size,
        ),
    ):
        if differ(known, own):
            yield finding(
                code,
                f"the heads have {name} {own} and the target {known}: choose heads trained on "
                "this target",
            )
