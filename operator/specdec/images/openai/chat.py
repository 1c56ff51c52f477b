"""The variables of a chat template, from the body of a chat completion."""

import json
from collections.abc import Mapping
from typing import Any

from specdec.images.openai.checkpoint import ChatFormat
from specdec.images.openai.errors import ApiError
from specdec.images.openai.models import Chat
from specdec.servers.openai_body import Message

_RESERVED = ("messages", "tools", "add_generation_prompt")


def variables(body: Chat, form: ChatFormat) -> dict[str, Any]:
    """The variables for rendering a conversation.

    Raises:
        ApiError: a message that lacks what its role needs, or a part that is no text.
    """
    messages = [_message(message, index) for index, message in enumerate(body.messages)]
    tools = None
    if body.tools and body.tool_choice != "none":
        tools = [tool.model_dump(exclude_none=True) for tool in body.tools]
    own = dict(body.chat_template_kwargs or {})
    if reserved := [name for name in _RESERVED if name in own]:
        raise ApiError(
            f"chat_template_kwargs sets {reserved[0]}, which the endpoint sets; leave it out",
            param="chat_template_kwargs",
        )
    if body.reasoning_effort is not None:
        own.setdefault("reasoning_effort", body.reasoning_effort)
    return {
        **form.tokens,
        **own,
        "messages": messages,
        "tools": tools,
        "add_generation_prompt": True,
    }


def without_first_token(prompt: str, form: ChatFormat, *, adds_special_tokens: bool) -> str:
    """The prompt without the token that the server's tokenizer adds itself."""
    if adds_special_tokens and form.first_token:
        return prompt.removeprefix(form.first_token)
    return prompt


def _message(message: Message, index: int) -> dict[str, Any]:
    at = f"messages.{index}"
    content = _content(message, at)
    role = "system" if message.role == "developer" else message.role
    result: dict[str, Any] = {"role": role, "content": content}
    if message.role == "tool" and not message.tool_call_id:
        raise ApiError(
            f"{at} has no tool_call_id; name the call that it answers", param="messages"
        )
    if content is None and not (message.role == "assistant" and message.tool_calls):
        raise ApiError(f"{at} has no content; send text", param="messages")
    for name in ("name", "tool_call_id", "reasoning_content"):
        if (value := getattr(message, name)) is not None:
            result[name] = value
    if message.tool_calls:
        result["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.function.name,
                    "arguments": _arguments(call.function.arguments, at),
                },
            }
            for call in message.tool_calls
        ]
    return result


def _content(message: Message, at: str) -> str | None:
    """The text of a message; its parts are joined by line breaks."""
    if message.content is None or isinstance(message.content, str):
        return message.content
    for part in message.content:
        if part.type not in ("text", "refusal") or part.text is None:
            raise ApiError(
                f"{at} has a part of type {part.type}, but this model reads text only; "
                "send parts of type text",
                param="messages",
            )
    return "\n".join(part.text or "" for part in message.content)


def _arguments(text: str, at: str) -> Mapping[str, Any]:
    """The arguments of an earlier call as an object: templates write it as JSON themselves."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ApiError(
            f"{at} has a tool call whose arguments are no JSON object; send them back as "
            "the answer had them",
            param="messages",
        )
    return value
