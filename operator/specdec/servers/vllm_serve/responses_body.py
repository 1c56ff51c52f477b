"""The body of /v1/responses that the proxy passes on to vLLM's own server.

The server would keep answers in memory for `previous_response_id` and `background`, fetch images
and files, and run tools of its own: all that is missing here.
Source: vLLM, `entrypoints/openai/responses/protocol.py`.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from specdec.servers.openai_body import (
    FIRST_ERROR,
    MESSAGES,
    PARTS,
    TOOLS,
    Body,
    OpenBody,
    Text,
    at_most,
)
from specdec.servers.passed_body import (
    LOG_PROBS,
    Limit,
    Passed,
    Penalty,
    Repetition,
    Seed,
    Share,
    Short,
    Stop,
    Temperature,
    Variables,
)

_METADATA = 16
_INCLUDED = 4


class _Item(OpenBody):
    id: str | None = None
    status: str | None = None


class TextPart(OpenBody):
    """A part of a message; the server would fetch the address in a part that is no text."""

    type: Literal["input_text", "output_text", "refusal", "reasoning_text", "summary_text"]
    text: str | None = None
    refusal: str | None = None
    annotations: Annotated[list[Any], at_most(PARTS)] | None = None
    logprobs: list[Any] | None = None


_Parts = Annotated[list[TextPart], FIRST_ERROR, at_most(PARTS)]


class InputMessage(_Item):
    """A message of a client, or of an earlier answer."""

    type: Literal["message"] | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: str | _Parts


class FunctionCall(_Item):
    """A call of a function in an earlier answer."""

    type: Literal["function_call"]
    call_id: Text
    name: Text
    arguments: str


class FunctionOutput(_Item):
    """What the client's function returned."""

    type: Literal["function_call_output"]
    call_id: Text
    output: str


class ReasoningItem(_Item):
    """The reasoning of an earlier answer."""

    type: Literal["reasoning"]
    summary: _Parts
    content: _Parts | None = None
    encrypted_content: str | None = None


class Function(Body):
    """A function that the model may call: tools of the server itself are missing."""

    type: Literal["function"]
    name: Text
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedFunction(Body):
    """The function that the model shall call."""

    type: Literal["function"]
    name: Text


class Reasoning(Body):
    """How long the model may reason."""

    effort: Short | None = None
    summary: Short | None = None


class Form(Body):
    """The form of the text."""

    type: Literal["text", "json_object", "json_schema"]
    name: Text | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class TextOptions(Body):
    """What the text is like."""

    format: Form | None = None
    verbosity: Short | None = None


_Items = InputMessage | FunctionCall | FunctionOutput | ReasoningItem


class Responses(Passed):
    """The body of /v1/responses."""

    input: Text | Annotated[list[_Items], Field(min_length=1), FIRST_ERROR, at_most(MESSAGES)]
    instructions: str | None = None
    max_output_tokens: Limit | None = None
    stream: bool | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    seed: Seed | None = None
    stop: Stop | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Repetition | None = None
    top_logprobs: int | None = Field(None, ge=0, le=LOG_PROBS)
    include: (
        Annotated[
            list[Literal["message.output_text.logprobs", "reasoning.encrypted_content"]],
            at_most(_INCLUDED),
        ]
        | None
    ) = None
    reasoning: Reasoning | None = None
    include_reasoning: bool | None = None
    text: TextOptions | None = None
    tools: Annotated[list[Function], FIRST_ERROR, at_most(TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedFunction | None = None
    parallel_tool_calls: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    cache_salt: Text | None = None
    chat_template_kwargs: Variables | None = None
    metadata: Annotated[dict[str, str], at_most(_METADATA, "keys")] | None = None
    # Without effect on the answer.
    store: bool | None = None
    service_tier: Short | None = None
    prompt_cache_key: str | None = None
    user: str | None = None
    # One answer at a time, which the server does not keep.
    background: Literal[False] | None = None
    previous_response_id: None = None
