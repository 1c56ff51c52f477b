"""The draft/target loop of one prompt as a state machine: who is asked what next, and no I/O.

The scheme is speculative decoding (Leviathan et al. 2023, arXiv:2211.17192; Chen et al. 2023,
arXiv:2302.01318). Acceptance happens in the target's engine, which answers with the accepted draft
tokens and one token of its own; this module sizes the rounds and ends the answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Round:
    """What one verification gained.

    Attributes:
        drafted: draft tokens offered to the target.
        accepted: how many of them are in the answer.
        tokens: ids that the answer grew by.
    """

    drafted: int
    accepted: int
    tokens: tuple[int, ...]


class DraftLoop:
    """The answer to one prompt as it grows; ask `draft_length`, then tell `advance`, in turns.

    Args:
        prompt: token ids.
        max_tokens: new tokens at most.
        draft_tokens: draft tokens a round at most; 0 leaves the target alone, one token a round.
        end_id: the token that ends an answer.
        stop_words: token sequences; the answer ends with the first of them.

    Attributes:
        ids: prompt and answer so far.
        finished: nothing more is asked.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        draft_tokens: int,
        end_id: int | None = None,
        stop_words: Sequence[tuple[int, ...]] = (),
    ) -> None:
        self.ids = list(prompt)
        self.finished = max_tokens < 1
        self._start = len(self.ids)
        self._end = self._start + max_tokens
        self._draft_tokens = draft_tokens
        self._end_id = end_id
        self._stop_words = [word for word in stop_words if word]

    @property
    def tokens(self) -> list[int]:
        """The answer so far."""
        return self.ids[self._start :]

    def draft_length(self) -> int:
        """How many tokens to draft next; 0 asks the target without a draft.

        The target always adds one token, so drafting the last one would be wasted.
        """
        return max(0, min(self._draft_tokens, self._end - len(self.ids) - 1))

    def advance(self, proposal: Sequence[int], verified: Sequence[int]) -> Round:
        """Take the target's answer to a proposal.

        Args:
            proposal: the draft tokens that were offered.
            verified: new tokens of the target: those it accepted, then at most one of its own.
        """
        new = list(verified[: len(proposal) + 1])
        agreed = _common_prefix(proposal, new)
        kept = 0
        for token in new[: self._end - len(self.ids)]:
            self.ids.append(token)
            kept += 1
            if self._ends():
                self.finished = True
                break
        # Without a token of its own behind the agreed ones the target has met the end.
        self.finished = self.finished or len(new) <= agreed or len(self.ids) >= self._end
        return Round(len(proposal), min(agreed, kept), tuple(new[:kept]))

    def _ends(self) -> bool:
        if self.ids[-1] == self._end_id:
            return True
        # As in the engines, a stop word may begin in the prompt; its last token never lies there.
        return any(tuple(self.ids[-len(word) :]) == word for word in self._stop_words)


def _common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    for index, (left, right) in enumerate(zip(first, second, strict=False)):
        if left != right:
            return index
    return min(len(first), len(second))
