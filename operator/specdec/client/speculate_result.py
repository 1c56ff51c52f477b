"""The result of the client's draft/target loop for one prompt, with its rounds and logits.

`speculate` returns a `Result` for every prompt.
"""

from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from specdec.client.draft_loop import Round
from specdec.client.errors import ClientError


@dataclass(frozen=True)
class Step:
    """One round with its requested logits.

    Attributes:
        round: the result of the round.
        draft_logits: [drafted, vocabulary]; None unless requested.
        accepted_logits: [len(round.tokens), vocabulary] of the target; None unless requested.
    """

    round: Round
    draft_logits: NDArray[Any] | None = None
    accepted_logits: NDArray[Any] | None = None


@dataclass(frozen=True)
class Result:
    """The answer to one prompt; it is partial if there is an `error`.

    Attributes:
        index: of the prompt.
        text: the generated text, empty with an `error`.
        prompt_tokens: length of the prompt.
        tokens: ids of the answer.
        steps: the rounds in order.
        seconds: from the first call to the last.
        error: why the answer ended early, or None.
    """

    index: int
    prompt: str
    text: str = ""
    prompt_tokens: int = 0
    tokens: tuple[int, ...] = ()
    steps: tuple[Step, ...] = ()
    seconds: float = 0.0
    error: ClientError | None = field(default=None, compare=False)

    @property
    def drafted(self) -> int:
        """The number of draft tokens."""
        return sum(step.round.drafted for step in self.steps)

    @property
    def accepted(self) -> int:
        """The number of accepted draft tokens."""
        return sum(step.round.accepted for step in self.steps)
