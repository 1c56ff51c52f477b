"""Whether fetched checkpoints fit each other, by the facts that the fetch Job read from them.

Speculative decoding compares token ids of two models, so an id must be the same token in both. A
fact that is known of only one model is not compared: the files may not have it, or an older
release may not have read it. `spec.checks` sets the severity of each finding.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from specdec import backends
from specdec.api.checkpoint_facts import NO_FACTS, CheckpointFacts
from specdec.api.matrix import matrix, support
from specdec.api.model import Checks, Severity, SpeculativeModel
from specdec.api.reasons import CompatibilityReason
from specdec.backends.facts import Checkpoint
from specdec.backends.finding import Finding, differ
from specdec.pipeline.validation import parallelism


@dataclass(frozen=True)
class Verdict:
    """All findings; with any in `refused`, the models are neither built nor served."""

    findings: tuple[Finding, ...]

    @property
    def refused(self) -> tuple[Finding, ...]:
        """Findings that `spec.checks` enforces."""
        return tuple(f for f in self.findings if f.severity == "Enforce")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """Findings that are reported while the models are served."""
        return tuple(f for f in self.findings if f.severity == "Warn")


def judge(model: SpeculativeModel, facts: Mapping[str, CheckpointFacts]) -> Verdict:
    """Judge the facts (by role of `SpeculativeModel.sources`) with the severities of the spec."""
    findings = [
        *_architectures(model, facts),
        *parallelism.findings(model, facts),
        *_pair(model, facts),
        *backends.method(model).findings(model, facts),
        *_context(model, facts),
    ]
    weighed = (replace(f, severity=_severity(f, model.spec.checks)) for f in findings)
    return Verdict(tuple(f for f in weighed if f.severity != "Disabled"))


def padded(entries: int, tensor: int) -> int:
    """The vocabulary size in an engine: padded to a multiple of its tensor parallelism."""
    return -(-entries // tensor) * tensor


def _severity(finding: Finding, checks: Checks) -> Severity:
    """The severity that the spec sets, at most that of the finding itself."""
    asked: Severity = "Enforce"
    if finding.check:
        asked = getattr(checks, finding.check) or "Warn"
    return "Warn" if (asked, finding.severity) == ("Enforce", "Warn") else asked


def _architectures(
    model: SpeculativeModel, facts: Mapping[str, CheckpointFacts]
) -> Iterator[Finding]:
    """Architectures that are not known to work; an engine of such a model has no converter."""
    backend = model.spec.runtime.backend
    row = support(backend)
    for role in ("target", "draft"):
        own = facts.get(role, NO_FACTS).architecture
        if own is None or own in row.architectures:
            continue
        if row.tries_others:
            yield Finding(
                CompatibilityReason.ARCHITECTURE_NOT_SERVED,
                f"the {role} is {own}, which is not known to work with backend {backend}: choose "
                "one of the support matrix, or set spec.checks.architecture to Warn or Disabled "
                "to try it",
                "architecture",
                role,
            )
        else:
            yield Finding(
                CompatibilityReason.ARCHITECTURE_NOT_SERVED,
                f"the {role} is {own}, and backend {backend} serves "
                f"{', '.join(row.architectures)}: choose another checkpoint"
                f"{_backend_for(model, own)}",
                "",
                role,
            )


def _backend_for(model: SpeculativeModel, architecture: str) -> str:
    """The end of a sentence: a backend that serves or tries an architecture; empty without one."""
    method = model.spec.speculation.method
    able = [
        (architecture not in row.method_architectures.get(method, row.architectures), name)
        for name, row in matrix().items()
        if row.served and row.on_gpus and row.serves(method, row.default_version)
    ]
    for tried, name in sorted(able):
        if not tried or matrix()[name].tries_others:
            return f", or set spec.runtime.backend to {name}"
    return ""


def _pair(model: SpeculativeModel, facts: Mapping[str, CheckpointFacts]) -> Iterator[Finding]:
    if not {"target", "draft"} <= facts.keys():
        return
    target, draft = facts["target"], facts["draft"]
    if not backends.method(model).maps_vocabulary(model):
        yield from _tokens(model, target, draft)
    if differ(target.chat_template, draft.chat_template):
        yield Finding(
            CompatibilityReason.CHAT_TEMPLATE_MISMATCH,
            f"draft and target have different chat templates ({draft.chat_template} and "
            f"{target.chat_template}): fewer draft tokens may be accepted; choose a draft "
            "tuned with the target's template",
            "chat_template",
            "draft",
        )


def _tokens(
    model: SpeculativeModel, target: CheckpointFacts, draft: CheckpointFacts
) -> Iterator[Finding]:
    """Findings about token ids that are not the same in both models."""
    same = _same_tokenizer(target, draft)
    if same is False:
        yield Finding(
            CompatibilityReason.TOKENIZER_MISMATCH,
            f"draft and target have different tokenizers ({_difference(target, draft)}): choose a "
            "draft trained with the target's tokenizer",
            "tokenizer",
            "draft",
        )
    yield from _vocabulary(model, target, draft, sure=same is True)
    yield from _special_tokens(target, draft)


def _special_tokens(target: CheckpointFacts, draft: CheckpointFacts) -> Iterator[Finding]:
    """The begin token, and end tokens: those of a base model are some of its instruct model's."""
    ends = [_ends(target), _ends(draft)]
    for name, key, known, own, same in (
        ("end-of-text", "eos", *ends, not all(ends) or bool(set(ends[0]) & set(ends[1]))),
        ("begin-of-text", "bos", target.bos, draft.bos, not differ(target.bos, draft.bos)),
    ):
        if not same:
            yield Finding(
                CompatibilityReason.SPECIAL_TOKENS_MISMATCH,
                f"the {name} token is {_listed(own)} in the draft and {_listed(known)} in the "
                f"target: make {key}_token_id equal in both checkpoints' config.json",
                "special_tokens",
                "draft",
            )


def _ends(facts: CheckpointFacts) -> tuple[int, ...]:
    return facts.end_tokens or (() if facts.eos is None else (facts.eos,))


def _listed(ids: object) -> str:
    return " or ".join(map(str, ids)) if isinstance(ids, tuple) else str(ids)


def _same_tokenizer(target: CheckpointFacts, draft: CheckpointFacts) -> bool | None:
    """Whether token ids are the same in both; None if their files cannot be compared."""
    if _is_compared(target, draft) and not draft.token_differences:
        return True
    if differ(target.tokenizer_file, draft.tokenizer_file):
        values = target.sentence_piece, draft.sentence_piece
    else:
        values = target.tokenizer, draft.tokenizer
    return None if None in values else values[0] == values[1]


def _is_compared(target: CheckpointFacts, draft: CheckpointFacts) -> bool:
    """Whether the fetch Job compared these two tokenizers token by token."""
    return target.tokenizer is not None and draft.compared_tokenizer == target.tokenizer


def _difference(target: CheckpointFacts, draft: CheckpointFacts) -> str:
    if not _is_compared(target, draft):
        return f"{draft.tokenizer} and {target.tokenizer}"
    return f"{draft.token_differences} tokens differ, the first is {draft.first_difference}"


def _vocabulary(
    model: SpeculativeModel, target: CheckpointFacts, draft: CheckpointFacts, *, sure: bool
) -> Iterator[Finding]:
    """Findings about the vocabulary sizes; `sure` means that the tokenizers are known to be equal.

    Acceptance by logits compares entry by entry, so the padded sizes must be equal. Acceptance by
    tokens compares ids. With equal tokenizers, different sizes then only mean different padding,
    unless the draft has ids beyond the padded vocabulary of the target.
    """
    sizes = target.vocab_size, draft.vocab_size
    if sizes[0] is None or sizes[1] is None:
        return
    tensor = [parallelism.tensor(model, role) for role in ("target", "draft")]
    in_engine = padded(sizes[0], tensor[0]), padded(sizes[1], tensor[1])
    if model.spec.speculation.block.compares_logits and in_engine[0] != in_engine[1]:
        yield Finding(
            CompatibilityReason.PADDED_VOCAB_MISMATCH,
            f"the draft's engine has {in_engine[1]} vocabulary entries (tensor parallelism "
            f"{tensor[1]}) and the target's {in_engine[0]} (tensor parallelism {tensor[0]}), and "
            "acceptance Logits compares them one by one: set acceptance to Tokens, or choose a "
            "draft and parallelism of the same padded size",
            "vocabulary",
            "draft",
        )
    elif sizes[0] != sizes[1]:
        equal = backends.method(model).equal_vocabulary(model)
        harmless = sure and not equal and sizes[1] <= in_engine[0]
        yield Finding(
            CompatibilityReason.VOCAB_SIZE_MISMATCH,
            f"the draft's vocabulary has {sizes[1]} entries and the target's {sizes[0]}: choose "
            "a draft with the target's vocab_size",
            # No check weakens it where the server would not start.
            "" if equal else "vocabulary",
            "draft",
            "Warn" if harmless else "Enforce",
        )


def _context(model: SpeculativeModel, facts: Mapping[str, CheckpointFacts]) -> Iterator[Finding]:
    """Findings about `limits.maxSeqLen`: a model loses quality beyond its trained positions.

    An engine's position table also ends at the trained positions. Drafts past the end of the
    longest sequence need positions of their own, although no answer keeps these drafts.
    """
    known = {role: Checkpoint(role, "", "", 0, each) for role, each in facts.items()}
    sized = backends.sized(model, known, 0).models
    yield from _heads_context(facts.get("heads", NO_FACTS), sized["target"].limits.max_seq_len)
    method = backends.method(model)
    for role in sized:
        # A draft in the target's processes has the target's limits.
        limited = "target" if method.in_target_process else role
        positions = facts.get(role, NO_FACTS).max_position
        longest = sized[limited].limits.max_seq_len
        if positions is None:
            continue
        beyond = method.positions_beyond(model) if role == "target" else 0
        if longest > positions:
            message = (
                f"the {role} was trained on {positions} positions and limits.maxSeqLen allows "
                f"{longest}: longer sequences may lose quality and acceptance; "
                f"lower limits.maxSeqLen of the {limited}, or choose a model made for more"
            )
        elif longest + beyond > positions:
            message = (
                f"the {role} was trained on {positions} positions, and limits.maxSeqLen {longest} "
                f"with the {beyond} draft tokens of a step needs {longest + beyond}: drafts at "
                "the end of a sequence may be computed from undefined positions; lower "
                f"limits.maxSeqLen of the {role} to {positions - beyond}, or choose a model made "
                "for more"
            )
        else:
            continue
        yield Finding(CompatibilityReason.CONTEXT_TOO_SHORT, message, "context_length", role)


def _heads_context(heads: CheckpointFacts, longest: int) -> Iterator[Finding]:
    """vLLM drafts nothing in a step with a sequence beyond the positions of the heads."""
    positions = heads.max_position
    if positions is not None and longest > positions:
        yield Finding(
            CompatibilityReason.CONTEXT_TOO_SHORT,
            f"max_position_embeddings is {positions} in config.json of the heads and "
            f"limits.maxSeqLen of the target is {longest}: longer sequences may get no drafts, or "
            "worse ones; lower limits.maxSeqLen, or choose heads made for more",
            "context_length",
            "heads",
        )
