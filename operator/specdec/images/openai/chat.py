"""The variables of a chat template, from the body of a chat completion."""

import json
from collections.abc import Mapping
from typing import Any

from specdec.images.openai.checkpoint import ChatFormat
from specdec.images.openai.errors import ApiError
from specdec.images.openai.models import Chat, HistoryMessage
from specdec.servers.openai_body import CalledFunction

# Templates know neither OpenAI's newer name of a role nor its deprecated one.
_ROLES = {"developer": "system", "function": "tool"}
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


def _message(message: HistoryMessage, index: int) -> dict[str, Any]:
    at = f"messages.{index}"
    content = _content(message, at)
    role = _ROLES.get(message.role, message.role)
    if message.role == "tool" and not message.tool_call_id:
        raise ApiError(
            f"{at} has no tool_call_id; name the call that it answers", param="messages"
        )
    calls = [_call(call.id, call.function) for call in message.tool_calls or ()]
    if message.function_call is not None:
        calls.append(_call("", message.function_call))
    if content is None and not calls:
        if role not in ("assistant", "tool"):
            raise ApiError(f"{at} has no content; send text", param="messages")
        content = ""
    result: dict[str, Any] = {"role": role, "content": content}
    optional = {
        "name": message.name,
        "tool_call_id": message.tool_call_id,
        "reasoning_content": message.reasoning_content or message.reasoning,
        "tool_calls": calls or None,
    }
    return result | {name: value for name, value in optional.items() if value is not None}


def _content(message: HistoryMessage, at: str) -> str | None:
    """The text of a message; its parts are joined by line breaks."""
    if message.content is None:
        return message.refusal
    if isinstance(message.content, str):
        return message.content
    texts = []
    for part in message.content:
        text = part.refusal if part.type == "refusal" and part.text is None else part.text
        if part.type not in ("text", "refusal") or text is None:
            raise ApiError(
                f"{at} has a part of type {part.type}, but this model reads text only; "
                "send parts of type text",
                param="messages",
            )
        texts.append(text)
    return "\n".join(texts)


def _call(id_: str, function: CalledFunction) -> dict[str, Any]:
    values = {"name": function.name, "arguments": _arguments(function.arguments)}
    return {"id": id_, "type": "function", "function": values}


def _arguments(text: str) -> Mapping[str, Any]:
    """The arguments of an earlier call as an object: templates write it as JSON themselves.

    A model may have written no object. Agents send such a call back with the error that it caused,
    so it is not refused: templates that read an object get one with the text.
    """
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        value = text
    if value is None:
        return {}
    return value if isinstance(value, dict) else {"arguments": text}
