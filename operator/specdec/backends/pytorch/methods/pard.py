"""Method PARD: a small model proposes all its tokens in one step."""

from typing_extensions import override

from specdec.backends.pytorch.methods.definition import LlmApiMethod


class PardMethod(LlmApiMethod):
    """The draft runs in the processes of the target."""

    needs_block = True
    drafts_with = "draft"

    @override
    def missing_block(self, block: str) -> str:
        return f"set spec.speculation.{block}.draft to a parallel draft model of the target"


METHOD = PardMethod()
