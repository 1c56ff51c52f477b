"""`spec.speculation.reDrafter`: a recurrent drafter on the target."""

from typing_extensions import override

from specdec.api.methods.block import Block
from specdec.api.source import Source


class ReDrafter(Block):
    """A recurrent drafter; the engine has a fixed draft length of beams x length per beam."""

    checkpoint: Source
    num_beams: int = 5
    draft_len_per_beam: int = 5
    greedy_search: bool = True

    @property
    @override
    def heads_source(self) -> Source:
        """The drafter."""
        return self.checkpoint
