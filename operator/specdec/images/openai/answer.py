"""Build the JSON of answers: whole, or as the pieces of a stream.

A piece of plain text is the hot path: its JSON is a prefix, the text and a suffix.
"""

import json
import math
import secrets
import time
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from specdec.client.answer import Counts
from specdec.images.openai.parsers.split import Call, Content, Event, Reasoning

DONE = b"data: [DONE]\n\n"
_END = "\n\n"
_quoted = json.encoder.encode_basestring_ascii


@dataclass(slots=True)
class Totals:
    """What the server has reported of one answer so far.

    Attributes:
        prompt_tokens: None if the server does not report it.
        tokens: of the answer; 0 if the server reports neither counts nor log probabilities.
        counts: drafted and accepted tokens; None if the server does not report them.
        histogram: at index i, the verification steps that accepted i draft tokens; empty if the
            server does not report them.
    """

    prompt_tokens: int | None = None
    tokens: int = 0
    counts: Counts | None = None
    histogram: Sequence[int] = ()

    @classmethod
    def of(cls, parts: Sequence["Totals"]) -> "Totals":
        """The sums over several answers; a number that one of them lacks is lacking."""
        prompts = [part.prompt_tokens for part in parts if part.prompt_tokens is not None]
        counts = [part.counts for part in parts if part.counts is not None]
        drafted = sum(each.drafted for each in counts)
        return cls(
            sum(prompts) if len(prompts) == len(parts) else None,
            sum(part.tokens for part in parts),
            Counts(drafted, sum(each.accepted for each in counts))
            if len(counts) == len(parts)
            else None,
            [sum(steps) for steps in zip_longest(*(p.histogram for p in parts), fillvalue=0)],
        )

    def usage(self) -> dict[str, Any] | None:
        """OpenAI's `usage`; None if the server does not count tokens."""
        if self.prompt_tokens is None:
            return None
        usage: dict[str, Any] = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.tokens,
            "total_tokens": self.prompt_tokens + self.tokens,
        }
        if self.counts is not None:
            accepted, drafted = self.counts.accepted, self.counts.drafted
            usage["completion_tokens_details"] = {
                "accepted_prediction_tokens": accepted,
                "rejected_prediction_tokens": max(0, drafted - accepted),
            }
        return usage

    def metrics(self) -> dict[str, Any] | None:
        """The field `metrics`; None if the server does not report draft tokens.

        An engine that drafts itself reports no verification steps, so the fields that need them
        are absent.
        """
        if self.counts is None:
            return None
        accepted, drafted = self.counts.accepted, self.counts.drafted
        values: dict[str, Any] = {
            "draft_acceptance_rate": accepted / drafted if drafted else 0.0,
            "num_accepted_draft_tokens": accepted,
            "num_draft_tokens": drafted,
        }
        if steps := sum(self.histogram):
            # Each step adds one token of the target's own to the accepted ones.
            values |= {
                "acceptance_histogram": list(self.histogram),
                "num_spec_steps": steps,
                "num_spec_tokens": accepted + steps,
                "mean_acceptance_length": (accepted + steps) / steps,
            }
        return {"speculative_decoding": values}


@dataclass(frozen=True)
class Head:
    """The fields that all parts of one answer share."""

    model: str
    chat: bool
    id: str = ""
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        prefix = "chatcmpl" if self.chat else "cmpl"
        object.__setattr__(self, "id", self.id or f"{prefix}-{secrets.token_hex(12)}")

    def fields(self, *, chunk: bool) -> dict[str, Any]:
        """The first fields of a body."""
        kind = "text_completion"
        if self.chat:
            kind = "chat.completion.chunk" if chunk else "chat.completion"
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


class Pieces:
    """The events (SSE) of one stream.

    Args:
        head: of the answer.
        null_usage: events have `usage: null`.
        running: events have the usage of these totals instead.
    """

    def __init__(self, head: Head, *, null_usage: bool, running: Totals | None = None) -> None:
        self._head, self._running = head, running
        # OpenAI sends `usage: null` on each piece if the client requests the usage.
        self._null_usage = {"usage": None} if null_usage else {}
        mark = "\0"
        template = self._encode(self._choice(Content(mark)))
        self._before, _, self._after = template.partition(_quoted(mark))
        self._calls = 0

    def first(self) -> str:
        """The event that opens a chat; a completion has none."""
        if not self._head.chat:
            return ""
        delta = {"role": "assistant", "content": ""}
        return self._encode({"index": 0, "delta": delta, "logprobs": None, "finish_reason": None})

    def text(self, text: str) -> str:
        """The event of plain text."""
        if self._running is not None:
            return self.event(Content(text))
        return f"{self._before}{_quoted(text)}{self._after}"

    def event(self, event: Event | None, log_probs: Mapping[str, Any] | None = None) -> str:
        """The event of any kind of piece."""
        choice = self._choice(event)
        return self._encode({**choice, "logprobs": log_probs} if log_probs else choice)

    def last(self, reason: str, metrics: Mapping[str, Any] | None) -> str:
        """The event with the finish reason."""
        choice = {**self._choice(None), "finish_reason": reason}
        return self._encode(choice, {"metrics": metrics} if metrics else {})

    def usage(self, usage: Mapping[str, Any] | None, metrics: Mapping[str, Any] | None) -> str:
        """The event with the usage, which has no choice."""
        body = {**self._head.fields(chunk=True), "choices": [], "usage": usage}
        return _event({**body, "metrics": metrics} if metrics else body)

    def _choice(self, event: Event | None) -> dict[str, Any]:
        choice = {"index": 0, "logprobs": None, "finish_reason": None}
        if not self._head.chat:
            text = event.text if isinstance(event, Content | Reasoning) else ""
            return {**choice, "text": text}
        if isinstance(event, Content):
            delta: dict[str, Any] = {"content": event.text}
        elif isinstance(event, Reasoning):
            delta = {"reasoning_content": event.text}
        elif isinstance(event, Call):
            delta = {"tool_calls": [{"index": self._calls, **tool_call(event)}]}
            self._calls += 1
        else:
            delta = {}
        return {**choice, "delta": delta}

    def _encode(self, choice: Mapping[str, Any], more: Mapping[str, Any] | None = None) -> str:
        fields = self._head.fields(chunk=True)
        usage = self._null_usage if self._running is None else {"usage": self._running.usage()}
        return _event({**fields, "choices": [choice], **usage, **(more or {})})


@dataclass(frozen=True)
class Choice:
    """A complete answer to one prompt."""

    events: Sequence[Event]
    reason: str
    totals: Totals
    log_probs: Mapping[str, Any] | None


def whole(head: Head, choices: Sequence[Choice], *, with_metrics: bool) -> bytes:
    """The body of an answer that is not streamed, with a choice for each prompt."""
    totals = Totals.of([choice.totals for choice in choices])
    shaped = [_choice(head, choice, index) for index, choice in enumerate(choices)]
    body = {**head.fields(chunk=False), "choices": shaped}
    if usage := totals.usage():
        body["usage"] = usage
    if with_metrics and (metrics := totals.metrics()):
        body["metrics"] = metrics
    return json.dumps(body).encode()


def _choice(head: Head, made: Choice, index: int) -> dict[str, Any]:
    content = "".join(event.text for event in made.events if isinstance(event, Content))
    choice: dict[str, Any] = {
        "index": index,
        "logprobs": made.log_probs,
        "finish_reason": made.reason,
    }
    if not head.chat:
        return {**choice, "text": content}
    calls = [tool_call(event) for event in made.events if isinstance(event, Call)]
    thoughts = "".join(event.text for event in made.events if isinstance(event, Reasoning))
    # OpenAI sends null in place of an empty text beside tool calls.
    text = None if calls and not content else content
    message: dict[str, Any] = {"role": "assistant", "content": text}
    message |= {"reasoning_content": thoughts} if thoughts else {}
    message |= {"tool_calls": calls} if calls else {}
    return {**choice, "message": {**message, "refusal": None}}


def tool_call(call: Call) -> dict[str, Any]:
    """A tool call with a new id."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": function}


class LogProbs:
    """Log probabilities in OpenAI's shape for a completion, or in its shape for a chat.

    The server reports a probability for each token, and text for each piece. A piece of several
    tokens gives its text to the first of them and empty text to the others.
    """

    def __init__(self, *, chat: bool) -> None:
        self._chat = chat
        self._offset = 0
        # Of a whole answer, with an eighth of the memory of its objects.
        self._texts: list[str] = []
        self._values = array("d")

    def add(self, text: str, values: Iterable[float]) -> dict[str, Any] | None:
        """The object of one piece; None for a piece without tokens."""
        texts = [text]
        entries = [self._entry(texts.pop() if texts else "", value) for value in values]
        return self._shaped(entries) if entries else None

    def keep(self, text: str, values: Iterable[float]) -> None:
        """Keep a piece for the object of the whole answer."""
        for value in values:
            self._texts.append(text)
            self._values.append(value)
            text = ""

    def all(self) -> dict[str, Any]:
        """The object of all pieces that were kept."""
        pairs = zip(self._texts, self._values, strict=True)
        return self._shaped([self._entry(token, value) for token, value in pairs])

    def _entry(self, token: str, value: float) -> dict[str, Any]:
        # JSON has no infinity.
        number = value if math.isfinite(value) else -9999.0
        offset, self._offset = self._offset, self._offset + len(token)
        return {"token": token, "logprob": number, "offset": offset}

    def _shaped(self, entries: list[dict[str, Any]]) -> dict[str, Any]:
        if not self._chat:
            return {
                "tokens": [entry["token"] for entry in entries],
                "token_logprobs": [entry["logprob"] for entry in entries],
                "top_logprobs": None,
                "text_offset": [entry["offset"] for entry in entries],
            }
        content = [
            {
                "token": entry["token"],
                "logprob": entry["logprob"],
                "bytes": list(entry["token"].encode()),
                "top_logprobs": [],
            }
            for entry in entries
        ]
        return {"content": content, "refusal": None}


def _event(body: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(body, separators=(',', ':'))}{_END}"
