"""Method DFlash: a draft that reads hidden states of the target proposes a block in one step."""

import math
from collections.abc import Iterator, Mapping

from typing_extensions import override

from specdec.api.checkpoint_facts import NO_FACTS, CheckpointFacts
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import CompatibilityReason
from specdec.backends.facts import Checkpoint
from specdec.backends.finding import Finding
from specdec.backends.footprint import EngineSizes
from specdec.backends.methods import heads
from specdec.backends.pytorch.methods.definition import DraftMemory, LlmApiMethod

# Larger than any draft's numbers: a damaged configuration must not reach the arithmetic.
_MOST = 10**6
# Bytes of a hidden state, and of an element of the draft's context.
_BYTES = 2


class DFlashMethod(LlmApiMethod):
    """The draft has the embedding and the output projection of the target."""

    needs_block = True
    drafts_with = "heads"

    @override
    def missing_block(self, block: str) -> str:
        return f"set spec.speculation.{block}.checkpoint to a DFlash draft of the target"

    @override
    def warnings(self, model: SpeculativeModel) -> tuple[str, ...]:
        """The worker of TensorRT-LLM stores only hidden states of tokens that it computes."""
        if not model.spec.target.kv_cache.reuse:
            return ()
        return (
            "kvCache.reuse of the target is true, and a DFlash draft sees nothing of reused "
            "blocks: compare the acceptance with kvCache.reuse false",
        )

    @override
    def draft_memory(
        self, model: SpeculativeModel, draft: Checkpoint, target: EngineSizes
    ) -> DraftMemory | None:
        """The draft's cache, a second copy of it for each request, and states of the target.

        TensorRT-LLM allocates the copy for full sequences of a full batch, beside the cache that
        it also reserves for the draft. A sequence may end after the draft's last position.
        """
        del model
        own = draft.facts
        sizes = [n or 0 for n in (own.layers, own.kv_heads, own.head_dim, own.captured_layers)]
        if not all(0 < size <= _MOST for size in sizes):
            return None
        layers, kv_heads, width, captured = sizes
        elements = 2 * layers * math.ceil(kv_heads / target.split) * width
        longest = target.max_seq_len + 2 * target.draft_len
        longest = min(longest, own.max_position or longest)
        positions = longest + target.draft_len + 1
        return DraftMemory(
            parts={
                "DraftContext": (target.max_batch_size + 1) * positions * elements * _BYTES,
                "HiddenStates": target.max_num_tokens * captured * target.sizes.hidden * _BYTES,
            },
            kv_per_token=elements * target.bytes_per_kv_element,
        )

    @override
    def findings(
        self, model: SpeculativeModel, facts: Mapping[str, CheckpointFacts]
    ) -> Iterator[Finding]:
        """As for heads; also compares the block, the mask token and the layers of the target."""
        fit = heads.fit(model, facts)
        yield from fit.findings
        target, draft = facts.get("target", NO_FACTS), fit.facts
        if draft.method is None:
            return
        block, length = draft.block_size, self.max_draft_len(model)
        if block is not None and length >= block:
            yield heads.finding(
                CompatibilityReason.DRAFT_LENGTH_MISMATCH,
                f"the draft was trained on blocks of {block} tokens, the first of which is known, "
                f"and maxDraftTokens is {length}: set it to {max(block - 1, 1)} at most",
            )
        yield from _missing(draft)
        yield from _mask(target, draft)
        yield from _layers(target, draft)


def _missing(draft: CheckpointFacts) -> Iterator[Finding]:
    """Keys without which the LLM API drafts from a wrong token, or from no hidden states."""
    for fact, key in (
        (draft.mask_token, "mask_token_id"),
        (draft.captured_layers, "target_layer_ids"),
    ):
        if fact is None:
            yield heads.finding(
                CompatibilityReason.HEADS_METHOD_MISMATCH,
                f"config.json of the draft has no {key}, which TensorRT-LLM needs for DFlash: "
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


METHOD = DFlashMethod()
