"""The fields of `spec.speculation`: a method, and a block of settings for each method.

The modules of a method have the name `Method.key`. The one in `methods/` has the method's block.
The one in `backends/methods/` has its definition for backends with engines, and those in
`backends/pytorch/methods/` and `backends/vllm/methods/` its definitions for these backends.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import get_args

from specdec.api.methods.block import Block
from specdec.api.methods.d_flash import DFlash
from specdec.api.methods.draft_target import DraftTarget
from specdec.api.methods.eagle import Eagle
from specdec.api.methods.eagle3 import Eagle3
from specdec.api.methods.llm_api import (
    AcceptanceRateThreshold,
    AcceptanceThreshold,
    DraftLengthByLoad,
)
from specdec.api.methods.lookahead import Lookahead
from specdec.api.methods.medusa import Medusa
from specdec.api.methods.mtp import Mtp
from specdec.api.methods.n_gram import NGram
from specdec.api.methods.pard import Pard
from specdec.api.methods.re_drafter import ReDrafter
from specdec.api.methods.suffix_automaton import SuffixAutomaton
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
    EAGLE3 = "Eagle3"
    MTP = "MTP"
    N_GRAM = "NGram"
    SUFFIX_AUTOMATON = "SuffixAutomaton"
    PARD = "PARD"
    D_FLASH = "DFlash"

    @property
    def key(self) -> str:
        """The name of the method's field in `Speculation`, and of its modules."""
        return self.name.lower()


class LengthPolicy(StrEnum):
    """Whether all rounds draft the same number of tokens, or the number measured as fastest."""

    FIXED = "Fixed"
    ADAPTIVE = "Adaptive"


class DraftLengthPolicy(Value):
    """How the server chooses the draft length (tokens) of a request that does not set one.

    `minLength` and `maxLength` are the bounds of Adaptive. With `minLength` 0 the server may stop
    drafting. `maxLength` defaults to the largest draft length that a request may set.
    """

    type: LengthPolicy = LengthPolicy.FIXED
    min_length: int = 0
    max_length: int | None = None


class Speculation(Value):
    """The method and its settings.

    `maxDraftTokens` is built into the target's engine. Without engines, it is the draft length of
    the server. `draftTokens` is the server's default. With `penalties` requests may have penalties
    while the server of backend PyTorch drafts; those of backend VLLM always may.
    """

    method: Method
    max_draft_tokens: int | None = None
    draft_tokens: int | None = None
    draft_length_policy: DraftLengthPolicy | None = None
    draft_target: DraftTarget | None = None
    eagle: Eagle | None = None
    medusa: Medusa | None = None
    re_drafter: ReDrafter | None = None
    lookahead: Lookahead | None = None
    eagle3: Eagle3 | None = None
    mtp: Mtp | None = None
    n_gram: NGram | None = None
    suffix_automaton: SuffixAutomaton | None = None
    pard: Pard | None = None
    d_flash: DFlash | None = None
    draft_length_by_load: DraftLengthByLoad | None = None
    acceptance_threshold: AcceptanceThreshold | None = None
    acceptance_rate_threshold: AcceptanceRateThreshold | None = None
    penalties: bool = False

    @property
    def speculates(self) -> bool:
        """Whether the method drafts tokens."""
        return self.method is not Method.NONE

    @property
    def blocks(self) -> dict[Method, Block]:
        """The blocks that are set; in a valid spec, at most that of the method."""
        fields = {method: getattr(self, key) for method, key in _BLOCKS.items()}
        return {method: block for method, block in fields.items() if block is not None}

    @property
    def block(self) -> Block:
        """The block of the method; its defaults if the spec sets none."""
        key = _BLOCKS.get(self.method)
        own: Block | None = getattr(self, key) if key else None
        return own or _DEFAULTS.get(self.method, _NO_BLOCK)

    @property
    def length_policy(self) -> DraftLengthPolicy:
        """The spec's policy. Without one, the policy is adaptive if lookups draft, else fixed.

        Short matches are often wrong, and each wrong proposal costs time.
        """
        if self.draft_length_policy is not None:
            return self.draft_length_policy
        adaptive = self.block.drafts_from_lookups
        return DraftLengthPolicy(type=LengthPolicy.ADAPTIVE if adaptive else LengthPolicy.FIXED)

    @property
    def heads(self) -> Source | None:
        """The checkpoint of the draft heads; None for a method without heads."""
        return self.block.heads_source

    @classmethod
    def block_name(cls, method: Method) -> str | None:
        """The name in the spec of a method's block; None for a method without one."""
        field = cls.model_fields.get(method.key)
        return str(field.alias) if field else None


# The fields of the methods' blocks. Each use of a resource's models reads them, so they are
# computed once.
_BLOCKS = {method: method.key for method in Method if method.key in Speculation.model_fields}


def _defaults() -> Iterator[tuple[Method, Block]]:
    """The blocks that a spec may leave out, without any field set."""
    for method, key in _BLOCKS.items():
        kind, _ = get_args(Speculation.model_fields[key].annotation)
        if not any(field.is_required() for field in kind.model_fields.values()):
            yield method, kind()


_DEFAULTS = dict(_defaults())
_NO_BLOCK = Block()
