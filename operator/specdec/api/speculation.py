"""How draft tokens come about: a union by `method`, one block for each."""

from enum import StrEnum

from specdec.api.model_spec import ModelSpec
from specdec.api.source import Source
from specdec.api.value import Value


class Method(StrEnum):
    """How draft tokens come about; every method but None has a block of its own."""

    NONE = "None"
    DRAFT_TARGET = "DraftTarget"
    EAGLE = "Eagle"
    MEDUSA = "Medusa"
    RE_DRAFTER = "ReDrafter"
    LOOKAHEAD = "Lookahead"


class Topology(StrEnum):
    """Whether draft and target share a server, or each has one and the client runs the loop."""

    SINGLE_SERVER = "SingleServer"
    TWO_SERVERS = "TwoServers"


class Placement(StrEnum):
    """Whether draft and target share GPUs or each has its own."""

    SHARED = "Shared"
    DEDICATED = "Dedicated"


class Acceptance(StrEnum):
    """Whether draft tokens are compared as tokens, or by the ratio of both models' logits."""

    TOKENS = "Tokens"
    LOGITS = "Logits"


class LengthPolicy(StrEnum):
    """Whether every round drafts as many tokens, or as many as measurements say is fastest."""

    FIXED = "Fixed"
    ADAPTIVE = "Adaptive"


class DraftLengthPolicy(Value):
    """How the server chooses draft lengths (tokens) where a request names none.

    Bounds of Adaptive: with `minLength` 0 the draft may rest altogether; `maxLength` defaults to
    what a request may ask for.
    """

    type: LengthPolicy = LengthPolicy.FIXED
    min_length: int = 0
    max_length: int | None = None


class DraftTarget(Value):
    """A small model proposes, the target verifies.

    `draftLengthCeiling` is the longest draft (tokens) a request may ask for; it defaults to
    `maxDraftTokens`, which is built in. `draftAhead` is the number of answers for which the draft
    goes on while the target verifies.
    """

    draft: ModelSpec
    topology: Topology = Topology.SINGLE_SERVER
    placement: Placement = Placement.SHARED
    acceptance: Acceptance = Acceptance.TOKENS
    fast_logits: bool = False
    draft_length_ceiling: int | None = None
    draft_ahead: int | None = None


Choices = tuple[tuple[int, ...], ...]


class Eagle(Value):
    """EAGLE-1 heads on the target; `choices` is the tree as paths, empty the release's default."""

    checkpoint: Source
    num_layers: int = 4
    max_non_leaves_per_layer: int = 10
    choices: Choices = ()


class Medusa(Value):
    """Medusa heads on the target; `choices` is the tree as paths, empty the release's default."""

    heads: Source
    num_heads: int = 4
    num_layers: int = 1
    choices: Choices = ()


class ReDrafter(Value):
    """A recurrent drafter; its draft length is beams x length per beam, frozen at build."""

    checkpoint: Source
    num_beams: int = 5
    draft_len_per_beam: int = 5
    greedy_search: bool = True


class Lookahead(Value):
    """Window W, n-gram size N and verification set G of lookahead decoding."""

    window_size: int = 7
    ngram_size: int = 7
    verification_set_size: int = 7


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
    def heads(self) -> Source | None:
        """The heads' checkpoint, for the methods that have one beside the target's own."""
        if self.method is Method.EAGLE and self.eagle:
            return self.eagle.checkpoint
        if self.method is Method.MEDUSA and self.medusa:
            return self.medusa.heads
        if self.method is Method.RE_DRAFTER and self.re_drafter:
            return self.re_drafter.checkpoint
        return None
