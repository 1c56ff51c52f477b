"""`spec.speculation.draftTarget`: a small model proposes, the target verifies."""

from enum import StrEnum

from typing_extensions import override

from specdec.api.methods.block import Block
from specdec.api.model_spec import ModelSpec, OwnServer
from specdec.api.value import Value


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


class Lookup(Value):
    """Draft tokens from the text itself: what followed a match of at least `minMatch` tokens.

    With `memoryMegabytes`, also what followed a match in texts of earlier requests. A request
    names a scope, and only texts of requests that named the same scope are searched.
    """

    min_match: int = 2
    memory_megabytes: int | None = None


class DraftTarget(Block):
    """A small model proposes, the target verifies.

    `draftLengthCeiling` is the largest draft length (tokens) that a request may set; it defaults
    to `maxDraftTokens`, which is built into the engine. `draftAhead` is the number of prompts in
    flight up to which drafting is pipelined: the draft proposes while the target verifies.
    With `lookup`, the BLS proposes what followed an earlier occurrence of the last tokens, where
    that is better than a call of the draft. `draftServer` is for two servers. `rowsPerCall` is the
    largest number of prompts whose rounds share a call of an engine; with None, the backend
    decides. With `heterogeneousVocabulary` the draft may have another tokenizer.
    """

    draft: ModelSpec
    topology: Topology = Topology.SINGLE_SERVER
    placement: Placement | None = None
    acceptance: Acceptance = Acceptance.TOKENS
    fast_logits: bool = False
    draft_length_ceiling: int | None = None
    draft_ahead: int | None = None
    rows_per_call: int | None = None
    lookup: Lookup | None = None
    draft_server: OwnServer | None = None
    heterogeneous_vocabulary: bool = False

    @property
    def gpu_placement(self) -> Placement:
        """The placement; two servers are two pods, each with GPUs of its own."""
        if self.placement is not None:
            return self.placement
        two_servers = self.topology is Topology.TWO_SERVERS
        return Placement.DEDICATED if two_servers else Placement.SHARED

    @property
    @override
    def models(self) -> dict[str, ModelSpec]:
        """The draft."""
        return {"draft": self.draft}

    @property
    @override
    def servers(self) -> dict[str, OwnServer]:
        """The settings of the draft's server, if there are any."""
        return {} if self.draft_server is None else {"draft": self.draft_server}

    @property
    @override
    def drafts_from_lookups(self) -> bool:
        """Beside the draft, if the spec has `lookup`."""
        return self.lookup is not None

    @property
    @override
    def in_engine(self) -> bool:
        """False: the BLS drafts, or the client if there are two servers."""
        return False

    @property
    @override
    def separate_servers(self) -> bool:
        """By `topology`."""
        return self.topology is Topology.TWO_SERVERS

    @property
    @override
    def compares_logits(self) -> bool:
        """By `acceptance`."""
        return self.acceptance is Acceptance.LOGITS
