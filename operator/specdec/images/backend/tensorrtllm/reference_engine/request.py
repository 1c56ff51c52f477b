"""A request to the engine, and the updates that the engine reports for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .errors import RequestError
from .kv import Tokens
from .sampling import Sampling
from .weights import Floats
from .word_lists import EMPTY, WordList


@dataclass(frozen=True)
class Request:
    """What to decode, with which limits and options.

    Attributes:
        prompt: [tokens] ids.
        max_new: the most tokens the answer may have.
        draft: ids to verify in one round; the answer then ends after that round, as
            TensorRT-LLM's does. None is ordinary decoding.
        draft_logits: [drafts, vocabulary] logits from which the draft model drew the ids. With
            them, rejection sampling replaces the comparison of ids.
        threshold: a fixed number in place of rejection sampling's random one.
        lookahead: window, n-gram size and verification set, at most those of the model; None
            selects those of the model.
    """

    prompt: Tokens
    max_new: int
    rules: Sampling = field(default_factory=Sampling)
    stop_words: WordList = EMPTY
    draft: Tokens | None = None
    draft_logits: Floats | None = None
    threshold: float | None = None
    streaming: bool = False
    want_log_probs: bool = False
    want_context_logits: bool = False
    want_generation_logits: bool = False
    want_input_count: bool = False
    want_output_count: bool = False
    lookahead: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Usage:
    """What a request has used so far.

    Attributes:
        new_blocks: of the KV cache, allocated for it.
        reused_blocks: of the KV cache, with tokens of an earlier request.
        arrived, scheduled, first_token, last_token: on the monotonic clock, seconds; a moment
            that has not come is 0.
    """

    new_blocks: int = 0
    reused_blocks: int = 0
    arrived: float = 0.0
    scheduled: float = 0.0
    first_token: float = 0.0
    last_token: float = 0.0


@dataclass
class Update:
    """An update of a request: the tokens since the last update, and the totals so far.

    Attributes:
        tokens: new ids.
        log_probs: their log probabilities, if requested.
        cum_log_prob: the sum over the whole answer so far.
        generation_logits: one [vocabulary] for each new token, if requested.
        context_logits: [prompt, vocabulary], on the last update, if requested.
        finished: whether this is the last update.
        drafted: draft tokens verified so far; `accepted` of them were kept.
        steps: forward passes that gave tokens so far.
        reused: tokens of the prompt that came out of the KV cache.
        error: why it ended early, on the last update; None after a whole answer.
        due: SIMULATION: moment of the monotonic clock when the simulated device has the update.
        usage: of the request.
    """

    tokens: list[int]
    log_probs: list[float]
    cum_log_prob: float
    generation_logits: list[Floats]
    context_logits: Floats | None
    finished: bool
    drafted: int
    accepted: int
    steps: int
    reused: int
    error: RequestError | None = None
    due: float = 0.0
    usage: Usage = field(default_factory=Usage)


Listener = Callable[[Update], None]


class Ticket:
    """A submitted request: it reports to its listener, and any thread can cancel it.

    Attributes:
        arrived: on the monotonic clock.
        report: passes an update to the listener.
        cancelled: whether `cancel` was called.
    """

    def __init__(self, request: Request, listener: Listener, arrived: float = 0.0) -> None:
        self.request = request
        self.arrived = arrived
        self.report = listener
        self.cancelled = False

    def cancel(self) -> None:
        """Ask the engine to end this request at its next step."""
        self.cancelled = True
