"""A method that drafts inside the server, whose engine runs draft and target in one process."""

from typing import ClassVar

from typing_extensions import override

from specdec.api.model import SpeculativeModel
from specdec.backends.methods.definition import MethodDefinition


class InServerMethod(MethodDefinition):
    """What such methods of all backends share; by default the target decodes alone.

    Attributes:
        drafts_with: the role of the checkpoint that drafts; empty without one.
    """

    drafts_with: ClassVar[str] = ""
    in_target_process = True

    @override
    def max_draft_len(self, model: SpeculativeModel) -> int:
        """The length of each draft."""
        return model.spec.speculation.max_draft_tokens or 0

    def warnings(self, model: SpeculativeModel) -> tuple[str, ...]:
        """Warnings about a valid spec with this method."""
        del model
        return ()
