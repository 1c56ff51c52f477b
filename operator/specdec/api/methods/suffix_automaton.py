"""`spec.speculation.suffixAutomaton`: drafts follow the longest earlier match of the suffix."""

from typing_extensions import override

from specdec.api.methods.block import Block


class SuffixAutomaton(Block):
    """A suffix automaton over prompt and answer.

    `maxMatchingSize` limits the suffix, in tokens; None means the longest. With `globalPool` the
    automaton also searches the texts of `globalPoolSize` other requests.
    """

    max_matching_size: int | None = None
    global_pool: bool = False
    global_pool_size: int | None = None

    @property
    @override
    def shared_texts_field(self) -> str:
        """The field of the texts."""
        return "globalPool" if self.global_pool else ""
