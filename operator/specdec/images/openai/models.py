"""The bodies of requests as pydantic models, with the limits of each value.

Keys that have no effect on an answer are accepted. Unknown keys are ignored in messages, and are
an error elsewhere.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from specdec.images.openai.limits import (
    BIASES,
    KEYS,
    MESSAGES,
    MODALITIES,
    PARTS,
    STOP,
    TEMPLATE_VARIABLES,
    TOOL_CALLS,
    TOOLS,
)

INT32 = 2**31 - 1
_INT64 = 2**63
# The validation of a list ends at its first error: each error needs a kilobyte.
FIRST_ERROR = Field(fail_fast=True)
# The type of the error about a list or an object with too many items.
TOO_MANY = "too_many"
Number = Annotated[float, Field(allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]


def at_most(limit: int, items: str = "items") -> BeforeValidator:
    """Refuse a list or object with more items before they are validated."""

    def counted(value: Any) -> Any:
        return _counted(value, limit, items)

    return BeforeValidator(counted)


def _counted(value: Any, limit: int, items: str) -> Any:
    if isinstance(value, list | dict) and len(value) > limit:
        raise PydanticCustomError(
            TOO_MANY,
            "has {count} {items}, more than the limit of {limit}; send fewer",
            {"count": len(value), "items": items, "limit": limit},
        )
    return value


class Body(BaseModel):
    """An object whose unknown keys are errors."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _few_keys(cls, value: Any) -> Any:
        """Each unknown key is an error of its own."""
        return _counted(value, KEYS, "keys")


class StreamOptions(Body):
    """Options of a stream; `include_obfuscation` has no effect, because pieces are not padded."""

    include_usage: bool = False
    include_obfuscation: bool | None = None


class Common(Body):
    """The fields of both kinds of completion.

    `top_k`, `min_tokens`, `repetition_penalty`, `num_draft_tokens` and `include_metrics` are not
    OpenAI's.
    """

    model: Text
    max_tokens: int | None = Field(None, ge=1, le=INT32)
    temperature: Number | None = Field(None, ge=0, le=2)
    top_p: Number | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=0, le=INT32)
    min_tokens: int | None = Field(None, ge=0, le=INT32)
    seed: int | None = Field(None, ge=-_INT64, lt=_INT64)
    stop: Text | Annotated[list[Text], FIRST_ERROR, at_most(STOP, "strings")] | None = None
    presence_penalty: Number | None = Field(None, ge=-2, le=2)
    frequency_penalty: Number | None = Field(None, ge=-2, le=2)
    repetition_penalty: Number | None = Field(None, gt=0, le=100)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    logit_bias: Annotated[dict[str, float], at_most(BIASES)] | None = None
    num_draft_tokens: int | None = Field(None, ge=0, le=INT32)
    include_metrics: bool = False
    # Without effect on the answer.
    user: Any = None
    metadata: Any = None
    store: Any = None
    service_tier: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None


class Completion(Common):
    """The body of /v1/completions."""

    prompt: str | list[Any]
    logprobs: int | None = None
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None


class Part(BaseModel):
    """A part of a message's content."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")
    type: str
    text: str | None = None


class CalledFunction(BaseModel):
    """The function of a tool call; `arguments` is JSON in a string."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")
    name: Text
    arguments: str


class ToolCall(BaseModel):
    """A tool call in an assistant's message."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(BaseModel):
    """A message; clients send back what answers contain, so further keys are ignored."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[Part], FIRST_ERROR, at_most(PARTS)] | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], FIRST_ERROR, at_most(TOOL_CALLS)] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


class Function(Body):
    """A function that the model may call; `parameters` is a JSON Schema."""

    name: Text
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Body):
    """A tool that the model may call."""

    type: Literal["function"]
    function: Function


class Chat(Common):
    """The body of /v1/chat/completions; `chat_template_kwargs` are variables of the template."""

    messages: Annotated[list[Message], FIRST_ERROR, at_most(MESSAGES)] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1, le=INT32)
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: Annotated[list[Tool], FIRST_ERROR, at_most(TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    modalities: Annotated[list[str], FIRST_ERROR, at_most(MODALITIES)] | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: Annotated[dict[str, Any], at_most(TEMPLATE_VARIABLES)] | None = None
    verbosity: Any = None
