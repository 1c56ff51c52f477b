"""The interface of a method's block in the spec, and its defaults."""

from specdec.api.model_spec import ModelSpec, OwnServer
from specdec.api.source import Source
from specdec.api.value import Value

# A tree of draft tokens as paths from its root; each step is the rank among the candidates.
Choices = tuple[tuple[int, ...], ...]


class Block(Value):
    """The block of a method; by default the target's engine drafts without other checkpoints."""

    @property
    def models(self) -> dict[str, ModelSpec]:
        """Models that are served beside the target, by role."""
        return {}

    @property
    def servers(self) -> dict[str, OwnServer]:
        """By role: the settings in which that role's server differs from the target's server."""
        return {}

    @property
    def heads_source(self) -> Source | None:
        """The checkpoint of heads that are built into the target's engine."""
        return None

    @property
    def draft_sources(self) -> dict[str, Source]:
        """Checkpoints of drafts that have no settings of their own, by role."""
        return {}

    @property
    def shared_texts_field(self) -> str:
        """The field that is set so that requests share their texts; empty without one."""
        return ""

    @property
    def drafts_from_lookups(self) -> bool:
        """Whether the BLS proposes what followed an earlier occurrence of the last tokens."""
        return False

    @property
    def in_engine(self) -> bool:
        """Whether the target's engine drafts, so that no request can turn drafts off."""
        return True

    @property
    def separate_servers(self) -> bool:
        """Whether each model has a server of its own, and clients run the draft/target loop."""
        return False

    @property
    def compares_logits(self) -> bool:
        """Whether draft tokens are accepted by the logits of both models."""
        return False
