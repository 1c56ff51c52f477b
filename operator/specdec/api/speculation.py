"""The speculation method: a union by `method`, with one block of settings for each.

A method's block is in `methods/`, under the name of its member below; so is its definition in
`backends/methods/`.
"""

from enum import StrEnum

from specdec.api.methods.block import Block, Control
from specdec.api.methods.draft_target import DraftTarget
from specdec.api.methods.eagle import Eagle
from specdec.api.methods.lookahead import Lookahead
from specdec.api.methods.medusa import Medusa
from specdec.api.methods.re_drafter import ReDrafter
from specdec.api.source import Source
from specdec.api.value import Value


class Method(StrEnum):
    """Where draft tokens come from; every method except None has a block of its own."""

    NONE = "None"
    DRAFT_TARGET = "DraftTarget"
    EAGLE = "Eagle"
    MEDUSA = "Medusa"
    RE_DRAFTER = "ReDrafter"
    LOOKAHEAD = "Lookahead"

    @property
    def key(self) -> str:
        """The method's name in Python: of its block's field and of its modules."""
        return self.name.lower()


class LengthPolicy(StrEnum):
    """Whether all rounds draft the same number of tokens, or the number measured as fastest."""

    FIXED = "Fixed"
    ADAPTIVE = "Adaptive"


class DraftLengthPolicy(Value):
    """How the server chooses draft lengths (tokens) where a request names none.

    Bounds of Adaptive: with `minLength` 0 the server may stop drafting; `maxLength` defaults to
    what a request may ask for.
    """

    type: LengthPolicy = LengthPolicy.FIXED
    min_length: int = 0
    max_length: int | None = None


class Speculation(Value):
    """Union by `method`; `maxDraftTokens` is built in, `draftTokens` is the server's default."""

    method: Method
    max_draft_tokens: int | None = None
    draft_tokens: int | None = None
    draft_length_policy: DraftLengthPolicy | None = None
    draft_target: DraftTarget | None = None
    eagle: Eagle | None = None
    medusa: Medusa | None = None
    re_drafter: ReDrafter | None = None
    lookahead: Lookahead | None = None

    @property
    def speculates(self) -> bool:
        """Whether the method drafts tokens."""
        return self.method is not Method.NONE

    @property
    def blocks(self) -> dict[Method, Block]:
        """The blocks that are set; validation leaves none but the method's own."""
        fields = {method: getattr(self, method.key, None) for method in Method}
        return {method: block for method, block in fields.items() if block is not None}

    @property
    def block(self) -> Block:
        """The method's block; without one, that of a method without settings."""
        return self.blocks.get(self.method, Block())

    @property
    def heads(self) -> Source | None:
        """The heads' checkpoint, for the methods that have one beside the target's own."""
        return self.block.heads_source

    @property
    def control(self) -> Control:
        """Who runs the speculation loop."""
        return self.block.control

    @classmethod
    def block_name(cls, method: Method) -> str | None:
        """The name in the spec of a method's block; None for a method without one."""
        field = cls.model_fields.get(method.key)
        return str(field.alias) if field else None
