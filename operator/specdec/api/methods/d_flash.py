"""`spec.speculation.dFlash`: a draft that reads hidden states of the target proposes a block."""

from typing_extensions import override

from specdec.api.methods.block import Block
from specdec.api.source import Source


class DFlash(Block):
    """A DFlash draft, which has no embedding of its own: it uses that of the target."""

    checkpoint: Source

    @property
    @override
    def heads_source(self) -> Source:
        """The draft, which works for one target alone, as heads do."""
        return self.checkpoint
