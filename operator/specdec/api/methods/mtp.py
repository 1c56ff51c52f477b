"""`spec.speculation.mtp`: layers of the target itself predict several tokens."""

from typing_extensions import override

from specdec.api.methods.block import Block
from specdec.api.methods.llm_api import SuffixMatching


class Mtp(Block):
    """Multi-token prediction layers, which are part of the target's checkpoint."""

    suffix_matching: SuffixMatching | None = None

    @property
    @override
    def shared_texts_field(self) -> str:
        """The field of suffix matching."""
        shared = self.suffix_matching is not None and self.suffix_matching.global_pool
        return "suffixMatching.globalPool" if shared else ""
