"""The draft/target loop for one prompt as a state machine without I/O.

`speculate` drives it. The algorithm is speculative decoding (Leviathan et al. 2023,
arXiv:2211.17192; Chen et al. 2023, arXiv:2302.01318). The target's engine accepts draft tokens,
and returns them with one token of its own. This module determines draft lengths and the end of the
answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Round:
    """The result of one round: one draft and one verification step.

    Attributes:
        drafted: number of draft tokens.
        accepted: number of them in the answer.
        tokens: ids that the round added to the answer.
    """

    drafted: int
    accepted: int
    tokens: tuple[int, ...]


class DraftLoop:
    """The state of one answer: alternate `draft_length` and `advance` until `finished`.

    Args:
        prompt: token ids.
        max_tokens: maximum of new tokens.
        draft_tokens: maximum per round; 0 runs the target alone, with one token per round.
        end_id: the token that ends an answer.
        stop_words: token sequences; the first that occurs ends the answer.

    Attributes:
        ids: prompt and answer so far.
        finished: the answer is complete.
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
        """The number of tokens to draft next; 0 runs the target without a draft.

        The target always adds one token, so a draft of the last token would be wasted.
        """
        return max(0, min(self._draft_tokens, self._end - len(self.ids) - 1))

    def advance(self, proposal: Sequence[int], verified: Sequence[int]) -> Round:
        """Add the target's result for a proposal to the answer.

        Args:
            proposal: the draft tokens.
            verified: new tokens of the target: the accepted ones, then at most one of its own.
        """
        new = list(verified[: len(proposal) + 1])
        accepted = _common_prefix(proposal, new)
        added = 0
        for token in new[: self._end - len(self.ids)]:
            self.ids.append(token)
            added += 1
            if self._ends():
                self.finished = True
                break
        # If the target adds no token of its own after the accepted ones, the answer has ended. The
        # engine never stops for lack of room: `max_tokens` stays within the server's limit.
        self.finished = self.finished or len(new) <= accepted or len(self.ids) >= self._end
        return Round(len(proposal), min(accepted, added), tuple(new[:added]))

    def _ends(self) -> bool:
        if self.ids[-1] == self._end_id:
            return True
        # As in the engines, a stop word may start in the prompt, but it must end in the answer.
        return any(tuple(self.ids[-len(word) :]) == word for word in self._stop_words)


def _common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    for index, (left, right) in enumerate(zip(first, second, strict=False)):
        if left != right:
            return index
    return min(len(first), len(second))
