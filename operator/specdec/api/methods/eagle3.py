"""`spec.speculation.eagle3`: EAGLE-3 heads beside the target."""

from typing_extensions import override

from specdec.api.methods.block import Block
from specdec.api.methods.llm_api import DynamicTree, SuffixMatching
from specdec.api.source import Source


class Eagle3(Block):
    """EAGLE-3 heads; `maxDraftTokens` is the number of their steps."""

    checkpoint: Source
    dynamic_tree: DynamicTree | None = None
    suffix_matching: SuffixMatching | None = None

    @property
    @override
    def heads_source(self) -> Source:
        """The EAGLE-3 heads."""
        return self.checkpoint

    @property
    @override
    def shared_texts_field(self) -> str:
        """The field of suffix matching."""
        shared = self.suffix_matching is not None and self.suffix_matching.global_pool
        return "suffixMatching.globalPool" if shared else ""
