"""The bodies of requests as pydantic models, with the limits of each value.

Keys that have no effect on an answer are accepted.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from specdec.images.openai.neutral import CHAT, COMPLETION, Table
from specdec.servers.openai_body import (
    FIRST_ERROR,
    INT32,
    MESSAGES,
    PARTS,
    STOP,
    TEMPLATE_VARIABLES,
    TOOLS,
    Body,
    CalledFunction,
    Message,
    Number,
    Part,
    Text,
    Tool,
    at_most,
)

_INT64 = 2**63


class StreamOptions(Body):
    """Options of a stream; `include_obfuscation` has no effect, because pieces are not padded."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class Common(Body):
    """The fields of both kinds of completion.

    `top_k`, `min_tokens`, `repetition_penalty`, `ignore_eos`, `num_draft_tokens` and
    `include_metrics` are not OpenAI's. `neutral` has the keys that change nothing.
    """

    neutral: ClassVar[Table] = {}

    model: Text
    max_tokens: int | None = Field(None, ge=1, le=INT32)
    temperature: Number | None = Field(None, ge=0, le=2)
    top_p: Number | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=-1, le=INT32)
    min_tokens: int | None = Field(None, ge=0, le=INT32)
    seed: int | None = Field(None, ge=-_INT64, lt=_INT64)
    stop: Text | Annotated[list[Text], FIRST_ERROR, at_most(STOP, "strings")] | None = None
    presence_penalty: Number | None = Field(None, ge=-2, le=2)
    frequency_penalty: Number | None = Field(None, ge=-2, le=2)
    repetition_penalty: Number | None = Field(None, gt=0, le=100)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    ignore_eos: bool | None = None
    num_draft_tokens: int | None = Field(None, ge=0, le=INT32)
    include_metrics: bool | None = None
    # Without effect on the answer.
    user: Any = None
    metadata: Any = None
    store: Any = None
    service_tier: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None
    request_id: Any = None


class Completion(Common):
    """The body of /v1/completions."""

    neutral = COMPLETION

    prompt: str | list[Any]
    logprobs: int | None = None
    echo: bool | None = None


class HistoryPart(Part):
    """A part of a message; a refusal is a text too."""

    refusal: str | None = None


class HistoryMessage(Message):
    """A message as OpenAI accepts it, with the deprecated forms of tool calls."""

    # Wider than in bodies that pass on to another server.
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]  # type: ignore[assignment]
    content: str | Annotated[list[HistoryPart], FIRST_ERROR, at_most(PARTS)] | None = None  # type: ignore[assignment]
    refusal: str | None = None
    function_call: CalledFunction | None = None


class Chat(Common):
    """The body of /v1/chat/completions; `chat_template_kwargs` are variables of the template."""

    neutral = CHAT

    messages: Annotated[list[HistoryMessage], FIRST_ERROR, at_most(MESSAGES)] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1, le=INT32)
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: Annotated[list[Tool], FIRST_ERROR, at_most(TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: Annotated[dict[str, Any], at_most(TEMPLATE_VARIABLES)] | None = None
    verbosity: Any = None
