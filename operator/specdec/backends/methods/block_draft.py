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
    """As for heads; also compares the block, the mask token and the layers of the target.

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
    yield from _layers(target, draft)


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
            f"the mask token of the draft is {mask} and the target has {vocabulary} tokens: "
            "choose a draft trained on this target",
        )


def _layers(target: CheckpointFacts, draft: CheckpointFacts) -> Iterator[Finding]:
    layers, trained, last = target.layers, draft.target_layers, draft.last_target_layer
    if layers is None:
        return
    if trained is not None and trained != layers:
        yield heads.finding(
            CompatibilityReason.HEADS_LAYERS_MISMATCH,
            f"the draft was trained on a target of {trained} layers and the target has {layers}: "
            "choose a draft trained on this target",
        )
    elif last is not None and last >= layers:
        yield heads.finding(
            CompatibilityReason.HEADS_LAYERS_MISMATCH,
            f"the draft reads layer {last} of the target, whose last layer is {layers - 1}: "
            "choose a draft trained on this target",
        )
