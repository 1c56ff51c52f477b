"""`spec.speculation.pard`: a small model proposes all its tokens in one step."""

from typing_extensions import override

from specdec.api.methods.block import Block
from specdec.api.source import Source


class Pard(Block):
    """A parallel draft model, whose tokenizer is that of the target."""

    draft: Source

    @property
    @override
    def draft_sources(self) -> dict[str, Source]:
        """The draft, which has no server and no GPUs of its own."""
        return {"draft": self.draft}
