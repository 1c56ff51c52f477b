"""Whether trained heads fit their target, for all methods with heads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from specdec.api.checkpoint_facts import NO_FACTS, CheckpointFacts
from specdec.api.matrix import matrix, support
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
    findings += [*_sizes(target, heads), *_layers(target, heads), *_layout(model, heads)]
    return Fit(tuple(findings), heads)


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
            f"draft_vocab_size is {drafted} in config.json of the heads and vocab_size {known} in "
            f"that of the target: choose heads trained on this target{_verifier(judged.facts)}",
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
                f"{name} is {own} in config.json of the heads and {known} in that of the target: "
                f"choose heads trained on this target{_verifier(heads)}",
            )


def _layers(target: CheckpointFacts, heads: CheckpointFacts) -> Iterator[Finding]:
    """Heads that read layers of the target.

    Drafts of blocks count layers from 0. EAGLE-3 heads, and drafts in the layout of speculators,
    may count the states before the first.
    """
    layers, trained, last = target.layers, heads.target_layers, heads.last_target_layer
    if layers is None:
        return
    past = layers if heads.block_size and heads.layout is None else layers + 1
    if trained is not None and trained != layers:
        yield finding(
            CompatibilityReason.HEADS_LAYERS_MISMATCH,
            f"num_target_layers is {trained} in config.json of the heads, and the target has "
            f"{layers} layers in its own: choose heads trained on this target{_verifier(heads)}",
        )
    elif last is not None and last >= past:
        yield finding(
            CompatibilityReason.HEADS_LAYERS_MISMATCH,
            f"config.json of the heads reads layer {last}, and that of the target has {layers} "
            f"layers: choose heads trained on this target{_verifier(heads)}",
        )


def _layout(model: SpeculativeModel, heads: CheckpointFacts) -> Iterator[Finding]:
    """Files of another library, which not every backend is known to load."""
    backend = model.spec.runtime.backend
    if heads.layout is None or heads.layout in support(backend).head_layouts:
        return
    able = [name for name, row in matrix().items() if heads.layout in row.head_layouts]
    yield replace(
        finding(
            CompatibilityReason.HEADS_LAYOUT_UNKNOWN,
            f"the heads have the layout of {heads.layout}, which backend {backend} is not known "
            f"to load: convert them, or set spec.runtime.backend to {' or '.join(able)}",
        ),
        severity="Warn",
    )


def _verifier(heads: CheckpointFacts) -> str:
    """The end of a sentence: the target that heads name; empty if they name none."""
    return f" (these name {heads.verifier})" if heads.verifier else ""
