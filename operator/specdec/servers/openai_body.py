"""Parts of the bodies that servers with OpenAI's API take, as pydantic models with limits.

Unknown keys are ignored in messages and tools, and are an error elsewhere.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

# One body: its JSON values without those within texts, and the items of each list and object.
VALUES = 65_536
KEYS = 64
MESSAGES = 2048
PARTS = 256
TOOLS = 256
TOOL_CALLS = 128
STOP = 64
MODALITIES = 4
BIASES = 1024
TEMPLATE_VARIABLES = 32
# Characters of a variable's name or text, in the proxy.
TEMPLATE_TEXT = 256

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


class OpenBody(BaseModel):
    """An object whose unknown keys are ignored.

    Clients send back what answers contain, and mark parts of the prompt for other servers' caches.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class Part(OpenBody):
    """A part of a message's content."""

    type: str
    text: str | None = None


class CalledFunction(OpenBody):
    """The function of a tool call; `arguments` is JSON in a string."""

    name: Text
    arguments: str


class ToolCall(OpenBody):
    """A tool call in an assistant's message."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(OpenBody):
    """A message."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[Part], FIRST_ERROR, at_most(PARTS)] | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], FIRST_ERROR, at_most(TOOL_CALLS)] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    # The newer name of the same, which vLLM's answers have.
    reasoning: str | None = None


class Function(OpenBody):
    """A function that the model may call; `parameters` is a JSON Schema."""

    name: Text
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(OpenBody):
    """A tool that the model may call."""

    type: Literal["function"]
    function: Function
