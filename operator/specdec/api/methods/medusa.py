"""`spec.speculation.medusa`: Medusa heads on the target."""

from typing_extensions import override

from specdec.api.methods.block import Block, Choices
from specdec.api.source import Source


class Medusa(Block):
    """Medusa heads on the target.

    `choices` is the tree of draft tokens as paths; empty means the default tree of the release.
    """

    heads: Source
    num_heads: int = 4
    num_layers: int = 1
    choices: Choices = ()

    @property
    @override
    def heads_source(self) -> Source:
        """The Medusa heads."""
        return self.heads
