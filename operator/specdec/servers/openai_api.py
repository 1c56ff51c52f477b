"""OpenAI's API of completions and chat completions, for each server that has it.

Token counts come from `usage`. Draft tokens come from the field `metrics.speculative_decoding`,
which only some servers have.
Source: https://platform.openai.com/docs/api-reference (completions, chat).
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from typing_extensions import override

from specdec.servers.chunk import OUTPUT_TOKENS, REASONS, Chunk, Counts
from specdec.servers.encoding import Declaration, JsonCall, Requests
from specdec.servers.errors import BadRequestError
from specdec.servers.request import Request
from specdec.servers.sampling import input_name

_PROMPT, _MESSAGES, _METRICS, _DRAFT_LENGTH = (
    "prompt",
    "messages",
    "include_metrics",
    "num_draft_tokens",
)
_FIELDS = frozenset(
    {
        *(_PROMPT, _MESSAGES, "max_tokens", "stream", "stop", "temperature", "top_p", "seed"),
        *("presence_penalty", "frequency_penalty"),
    }
)
# Further fields by the owner of a model. They are not OpenAI's, and other servers may refuse them.
_MORE_FIELDS = {
    "specdec": frozenset({"top_k", "min_tokens", "repetition_penalty", _DRAFT_LENGTH, _METRICS}),
    "vllm": frozenset({"top_k", "min_tokens", "repetition_penalty"}),
}
_NAMES = {"text_input": _PROMPT, "stop_words": "stop"}
# What every answer has, or has if its `usage` is asked for.
_LEFT_OUT = {
    *("exclude_input_in_output", "return_perf_metrics"),
    *("return_num_input_tokens", "return_num_output_tokens"),
}


class OpenAiRequests(Requests):
    """A server with the OpenAI API. By default its requests sample with temperature 1."""

    path = "/v1"
    listing = "models"
    greedy = MappingProxyType({"temperature": 0.0})

    @override
    def declaration(self, name: str, url: str, listed: Mapping[str, Any]) -> Declaration:
        items = listed.get("data")
        owners = {
            str(item.get("id")): str(item.get("owned_by"))
            for item in (items if isinstance(items, list) else [])
            if isinstance(item, dict)
        }
        if not name and len(owners) == 1:
            [name] = owners
        if name not in owners:
            asked = f"{url} has no model {name}" if name else f"{url} has {len(owners)} models"
            known = ", ".join(owners) or "none"
            raise BadRequestError(f"{asked}; give --model with one of: {known}")
        fields = _FIELDS | _MORE_FIELDS.get(owners[name], frozenset())
        return Declaration(fields, frozenset(), streams=True, name=name)

    @override
    def takes_draft_length(self, declared: Declaration) -> bool:
        return _DRAFT_LENGTH in declared.inputs

    @override
    def counts_tokens(self, declared: Declaration) -> bool:
        return True

    @override
    def encode(self, request: Request, declared: Declaration) -> JsonCall:
        """The body of a completion, or of a chat completion with the prompt as its message."""
        body: dict[str, Any] = {"model": declared.name}
        for name, tensor in request.fields(()):
            if name in _LEFT_OUT:
                continue
            own = input_name(_NAMES.get(name, name), declared.inputs, declared.name)
            body[own] = tensor.plain
        if _METRICS in declared.inputs:
            body[_METRICS] = True
        if request.stream:
            body["stream_options"] = {"include_usage": True}
        if not request.chat:
            return JsonCall("completions", body)
        body[_MESSAGES] = [{"role": "user", "content": body.pop(_PROMPT)}]
        return JsonCall("chat/completions", body)

    @override
    def reader(self, request: Request) -> "Events":
        return Events(with_tokens=request.token_counts)


OPENAI = OpenAiRequests()


class Events:
    """Reads the events of an answer; see `encoding.Reader`.

    `usage` and the counts of draft tokens come after the last text, and are no chunk of their own.
    """

    def __init__(self, *, with_tokens: bool) -> None:
        self._with_tokens = with_tokens
        self._rest: Chunk | None = None

    def read(self, response: Mapping[str, Any]) -> Chunk | None:
        """The chunk of an event with text; the end has what comes without text."""
        part = self._chunk(response)
        if part.text:
            return part
        before = self._rest or part
        self._rest = replace(
            part,
            counts=part.counts or before.counts,
            optional_outputs={**before.optional_outputs, **part.optional_outputs},
            reason=part.reason or before.reason,
        )
        return None

    def end(self) -> Chunk | None:
        """The counts and the reason of the end, without text."""
        return self._rest

    def _chunk(self, event: Mapping[str, Any]) -> Chunk:
        choice = (event.get("choices") or [{}])[0]
        message = choice.get("delta") or choice.get("message") or {}
        text = choice.get("text") or message.get("content") or ""
        reason = choice.get("finish_reason")
        tokens = (event.get("usage") or {}).get("completion_tokens")
        counted = (event.get("metrics") or {}).get("speculative_decoding") or {}
        names = ("num_draft_tokens", "num_accepted_draft_tokens")
        return Chunk(
            text,
            Counts(*(counted[name] for name in names)) if counted.keys() >= set(names) else None,
            (text,) if text else (),
            {OUTPUT_TOKENS: [tokens]} if self._with_tokens and tokens is not None else {},
            reason if reason in REASONS else None,
        )
