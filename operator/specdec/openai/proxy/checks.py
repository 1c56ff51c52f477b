"""What may reach the server: requests that have only text and name the served model."""

import json
from collections.abc import Iterator
from typing import Any

from specdec.openai.body import read, shown
from specdec.openai.errors import ApiError, unknown_model

# Fields by which a client would give the server a template to run, servers to contact, or files to
# read; in the order of the names.
_CLOSED = ("chat_template", "disaggregated_params", "lora_request")


def checked(body: bytes, served: str, upstream: str) -> bytes:
    """The body for the server.

    It is written anew, so that the server reads the values that were checked.

    Args:
        body: of the client.
        served: the model's name for clients.
        upstream: the model's name in the server.

    Raises:
        ApiError: the body may not be passed on.
    """
    value = read(body)
    if value.get("model") != served:
        raise unknown_model(shown(value.get("model", "")), served)
    for field in _CLOSED:
        if value.get(field) is not None:
            raise ApiError(
                f"{field} is no parameter of this endpoint; leave it out",
                code="unknown_parameter",
                param=field,
            )
    for kind in _kinds(value.get("messages")):
        if kind != "text":
            raise ApiError(
                f"messages has a part of type {shown(kind)}, and this endpoint takes text only; "
                "send parts of type text",
                param="messages",
            )
    return json.dumps({**value, "model": upstream}, allow_nan=False).encode()


def _kinds(messages: Any) -> Iterator[Any]:
    """The types of all parts; the server would fetch the address in a part that is no text."""
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            yield part.get("type") if isinstance(part, dict) else "text"


class Names:
    """Puts the served name into the server's answers.

    In JSON a quotation mark in a text is escaped, so the pattern matches a field and never text.

    Args:
        upstream: the model's name in the server, of letters, digits, `-`, `_` and `.`.
        served: the name for clients.
    """

    def __init__(self, upstream: str, served: str) -> None:
        named = json.dumps(served)
        self._pairs = [
            (f'"model":{space}{json.dumps(upstream)}'.encode(), f'"model":{space}{named}'.encode())
            for space in ("", " ")
        ]

    def replaced(self, text: bytes) -> bytes:
        """Whole lines, or a whole body, with the served name."""
        for own, served in self._pairs:
            text = text.replace(own, served)
        return text
