"""One answer from the server's pieces: stop strings, reasoning, tool calls, and how it ended."""

from collections.abc import Sequence
from dataclasses import dataclass

from specdec.client.answer import Counts
from specdec.images.openai.answer import Totals
from specdec.images.openai.parsers import TOOLS, reasoning
from specdec.images.openai.parsers.split import Call, Content, Event, Parser
from specdec.images.openai.parsers.stop import Stop
from specdec.images.openai.request import Task
from specdec.images.openai.settings import EndpointSettings


@dataclass(slots=True)
class Piece:
    """One response of the server.

    Attributes:
        text: new text.
        tokens: new tokens; 0 if the server does not report them.
        prompt_tokens: of the prompt, if the server reports them.
        counts: totals so far, if the server reports them.
        log_probs: of the new tokens, if requested.
        histogram: at index i, the verification steps so far that accepted i draft tokens, if
            requested.
        reason: OpenAI's `finish_reason`, if the server reports it with its last response.
    """

    text: str
    tokens: int = 0
    prompt_tokens: int | None = None
    counts: Counts | None = None
    log_probs: Sequence[float] = ()
    histogram: Sequence[int] = ()
    reason: str | None = None


class Assembly:
    """The state of one answer.

    Attributes:
        plain: every piece is content as it is, so `add` may be bypassed for its text.
        totals: what the server has reported.
    """

    def __init__(self, task: Task, settings: EndpointSettings, max_seq_len: int = 0) -> None:
        self._task, self._max_seq_len = task, max_seq_len
        self._stop = Stop(task.stop) if task.stop else None
        self._parsers: list[Parser] = []
        if task.chat and settings.reasoning_parser:
            parser = reasoning(
                settings.reasoning_parser, task.request.prompt, with_tools=bool(task.tools)
            )
            self._parsers.append(parser)
        if task.tools and settings.tool_parser:
            self._parsers.append(TOOLS[settings.tool_parser](task.tools))
        self.plain = not self._stop and not self._parsers
        self.totals = Totals()
        self._called = False
        self._reason: str | None = None

    @property
    def stopped(self) -> bool:
        """A stop string has ended the answer; further text is not needed."""
        return self._stop is not None and self._stop.stopped

    def count(self, piece: Piece) -> None:
        """Add what the server reported with a piece."""
        totals = self.totals
        totals.tokens += piece.tokens
        if piece.prompt_tokens is not None:
            totals.prompt_tokens = piece.prompt_tokens
        if piece.counts is not None:
            totals.counts = piece.counts
        totals.histogram = piece.histogram or totals.histogram
        self._reason = piece.reason or self._reason

    def add(self, text: str) -> list[Event]:
        """The events that are certain after new text; the rest of the text is kept for later."""
        if self._stop is not None:
            text = self._stop.feed(text)
        events: list[Event] = [Content(text)] if text else []
        for parser in self._parsers:
            events = _through(parser, events)
        return self._noted(events)

    def end(self) -> list[Event]:
        """The events of the text that was kept until the end of the answer."""
        text = self._stop.end() if self._stop is not None else ""
        events: list[Event] = [Content(text)] if text else []
        for parser in self._parsers:
            events = [*_through(parser, events), *parser.end()]
        return self._noted(events)

    def reason(self) -> str:
        """OpenAI's `finish_reason`.

        An answer that the limit has cut is no complete answer, even if it has complete calls.
        """
        end = self._end()
        return "tool_calls" if self._called and end != "length" else end

    def _end(self) -> str:
        if self.stopped:
            return "stop"
        if self._reason is not None:
            return self._reason
        totals = self.totals
        total = (totals.prompt_tokens or 0) + totals.tokens
        at_limit = totals.tokens >= self._task.max_tokens
        return "length" if at_limit or 0 < self._max_seq_len <= total else "stop"

    def _noted(self, events: list[Event]) -> list[Event]:
        self._called = self._called or any(isinstance(event, Call) for event in events)
        return events


def _through(parser: Parser, events: list[Event]) -> list[Event]:
    """The events, with each `Content` replaced by what the parser makes of its text."""
    result: list[Event] = []
    for event in events:
        result += parser.feed(event.text) if isinstance(event, Content) else [event]
    return result
