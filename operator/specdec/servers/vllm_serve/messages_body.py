"""The body of /v1/messages, Anthropic's API, that the proxy passes on to vLLM's own server.

The server would fetch an image from its address, so that blocks are texts and calls of tools.
Source: vLLM, `entrypoints/anthropic/protocol.py`.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from specdec.servers.openai_body import (
    FIRST_ERROR,
    INT32,
    MESSAGES,
    PARTS,
    STOP,
    TOOLS,
    Body,
    OpenBody,
    Text,
    at_most,
)
from specdec.servers.passed_body import Limit, Passed, Share, Short, Temperature, Variables


class TextBlock(OpenBody):
    """A block of text."""

    type: Literal["text"]
    text: str


class ToolUse(OpenBody):
    """A call of a tool in an earlier answer."""

    type: Literal["tool_use"]
    id: Text
    name: Text
    input: dict[str, Any]


class ToolResult(OpenBody):
    """What the client's tool returned."""

    type: Literal["tool_result"]
    tool_use_id: Text
    content: str | Annotated[list[TextBlock], FIRST_ERROR, at_most(PARTS)] | None = None
    is_error: bool | None = None


class Thinking(OpenBody):
    """The reasoning of an earlier answer."""

    type: Literal["thinking", "redacted_thinking"]
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None


_Blocks = Annotated[list[TextBlock | ToolUse | ToolResult | Thinking], FIRST_ERROR, at_most(PARTS)]


class BlockMessage(OpenBody):
    """A message."""

    role: Literal["user", "assistant", "system"]
    content: str | _Blocks


class InputTool(OpenBody):
    """A tool that the model may call; tools of the server itself are missing."""

    type: Literal["custom"] | None = None
    name: Text
    description: str | None = None
    input_schema: dict[str, Any]


class ToolChoice(OpenBody):
    """Whether and which tool the model shall call."""

    type: Literal["auto", "any", "tool", "none"]
    name: Text | None = None


class ThinkingOptions(Body):
    """Whether the model may reason."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = Field(None, ge=0, le=INT32)
    display: Short | None = None


class Metadata(Body):
    """Who asks."""

    user_id: str | None = None


class Messages(Passed):
    """The body of /v1/messages."""

    messages: Annotated[list[BlockMessage], FIRST_ERROR, at_most(MESSAGES)] = Field(min_length=1)
    max_tokens: Limit
    system: str | Annotated[list[TextBlock], FIRST_ERROR, at_most(PARTS)] | None = None
    stream: bool | None = None
    stop_sequences: Annotated[list[Text], FIRST_ERROR, at_most(STOP, "strings")] | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: Annotated[int, Field(ge=-1, le=INT32)] | None = None
    tools: Annotated[list[InputTool], FIRST_ERROR, at_most(TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: ThinkingOptions | None = None
    cache_salt: Text | None = None
    chat_template_kwargs: Variables | None = None
    metadata: Metadata | None = None
    service_tier: Short | None = None
