"""`spec.speculation.eagle`: EAGLE-1 heads on the target."""

from typing_extensions import override

from specdec.api.methods.block import Block, Choices
from specdec.api.source import Source


class Eagle(Block):
    """EAGLE-1 heads on the target.

    `choices` is the tree of draft tokens as paths; empty means the default tree of the release.
    """

    checkpoint: Source
    num_layers: int = 4
    max_non_leaves_per_layer: int = 10
    choices: Choices = ()

    @property
    @override
    def heads_source(self) -> Source:
        """The EAGLE heads."""
        return self.checkpoint
