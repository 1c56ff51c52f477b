"""The bodies that the proxy passes on to vLLM's own server.

Source: vLLM, `entrypoints/openai/{completion,chat_completion}/protocol.py`.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from specdec.servers.openai_body import (
    BIASES,
    FIRST_ERROR,
    STOP,
    Body,
    Text,
    at_most,
)
from specdec.servers.passed_body import Chat, Completion, Count, Generated, Operation, Operations
from specdec.servers.vllm_serve.messages_body import Messages
from specdec.servers.vllm_serve.responses_body import Responses

# Strings of which an answer is to be one.
_CHOICES = 256


class JsonSchema(Body):
    """A JSON Schema with a name, which an answer follows."""

    name: Text
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class Format(Body):
    """The form of an answer. Tags of a structure are missing, because they hold any grammar."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StructuredOutputs(Body):
    """vLLM's own form. Regular expressions and grammars of a client are missing."""

    json_: dict[str, Any] | str | None = Field(None, alias="json")
    json_object: bool | None = None
    choice: Annotated[list[Text], FIRST_ERROR, at_most(_CHOICES, "strings")] | None = None


class _Own(Generated):
    """The fields that only this server has."""

    response_format: Format | None = None
    structured_outputs: StructuredOutputs | None = None
    bad_words: Annotated[list[Text], FIRST_ERROR, at_most(STOP, "strings")] | None = None
    allowed_token_ids: Annotated[list[Count], FIRST_ERROR, at_most(BIASES)] | None = None
    cache_salt: Text | None = None
    return_token_ids: bool | None = None


class VllmCompletion(_Own, Completion):
    """The body of /v1/completions."""


class VllmChat(_Own, Chat):
    """The body of /v1/chat/completions."""

    include_reasoning: bool | None = None


BODIES: Operations = {
    "/v1/completions": Operation(VllmCompletion),
    "/v1/chat/completions": Operation(VllmChat),
    "/v1/responses": Operation(Responses, named_events=True),
    "/v1/messages": Operation(Messages, named_events=True, hides_refusals=True),
}
