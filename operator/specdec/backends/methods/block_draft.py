"""Whether a draft that proposes a block in one step, from hidden states, fits its target."""

from collections.abc import Iterator, Mapping

from specdec.api.checkpoint_facts import NO_FACTS, CheckpointFacts
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import CompatibilityReason
from specdec.backends.finding import Finding
from specdec.backends.methods import heads


def findings(
    model: SpeculativeModel, facts: Mapping[str, CheckpointFacts], length: int, engine: str
) -> Iterator[Finding]:
    """As for heads; also compares the block and the mask token.

    Args:
        model: the resource.
        facts: by role.
        length: the draft tokens of a step.
        engine: the name of the engine that drafts, for sentences.
    """
    fit = heads.fit(model, facts)
    yield from fit.findings
    target, draft = facts.get("target", NO_FACTS), fit.facts
    if draft.method is None:
        return
    block = draft.block_size
    if block is not None and length >= block:
        yield heads.finding(
            CompatibilityReason.DRAFT_LENGTH_MISMATCH,
            f"the draft was trained on blocks of {block} tokens, the first of which is known, "
            f"and maxDraftTokens is {length}: set it to {max(block - 1, 1)} at most",
        )
    yield from _missing(draft, engine)
    yield from _mask(target, draft)


def _missing(draft: CheckpointFacts, engine: str) -> Iterator[Finding]:
    """Keys without which an engine drafts from a wrong token, or from no hidden states."""
    for fact, key in (
        (draft.mask_token, "mask_token_id"),
        (draft.captured_layers, "target_layer_ids"),
    ):
        if fact is None:
            yield heads.finding(
                CompatibilityReason.HEADS_METHOD_MISMATCH,
                f"config.json of the draft has no {key}, which {engine} needs for {draft.method}: "
                "choose a draft whose dflash_config has it",
            )


def _mask(target: CheckpointFacts, draft: CheckpointFacts) -> Iterator[Finding]:
    mask, vocabulary = draft.mask_token, target.vocab_size
    if mask is not None and vocabulary is not None and mask >= vocabulary:
        yield heads.finding(
            CompatibilityReason.HEADS_VOCAB_SIZE_MISMATCH,
            f"mask_token_id is {mask} in config.json of the draft and vocab_size {vocabulary} in "
            "that of the target: choose a draft trained on this target",
        )
