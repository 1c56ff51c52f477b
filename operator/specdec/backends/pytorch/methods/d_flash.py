"""Method DFlash: a draft that reads hidden states of the target proposes a block in one step."""

import math
from collections.abc import Iterator, Mapping

from typing_extensions import override

from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint
from specdec.backends.finding import Finding
from specdec.backends.footprint import DraftMemory, EngineSizes
from specdec.backends.methods import block_draft
from specdec.backends.pytorch.methods.definition import LlmApiMethod

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
        yield from block_draft.findings(model, facts, self.max_draft_len(model), "TensorRT-LLM")


METHOD = DFlashMethod()
