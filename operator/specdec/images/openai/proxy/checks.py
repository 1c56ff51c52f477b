"""What may reach the server: requests that have only text and name the served model."""

import json
from dataclasses import dataclass

from specdec.images.openai.body import encoded, read, shown, validated
from specdec.images.openai.errors import ApiError, unknown_model
from specdec.servers.passed_body import Chat, Passed


@dataclass(frozen=True)
class Checked:
    """A body for the server, and how many answers it asks for."""

    body: bytes
    answers: int


def checked(allowed: type[Passed], body: bytes, served: str, upstream: str) -> Checked:
    """The body for the server.

    It is written anew, so that the server reads the values that were checked.

    Args:
        allowed: what the body may have.
        body: of the client.
        served: the model's name for clients.
        upstream: the model's name in the server.

    Raises:
        ApiError: the body may not be passed on.
    """
    value = read(body)
    if value.get("model") != served:
        raise unknown_model(shown(value.get("model", "")), served)
    passed = validated(value, allowed)
    if isinstance(passed, Chat):
        _refuse_other_than_text(passed)
    fields = passed.model_dump(exclude_unset=True, by_alias=True)
    return Checked(encoded({**fields, "model": upstream}), passed.answers)


def _refuse_other_than_text(passed: Chat) -> None:
    """The server would fetch the address in a part that is no text."""
    for message in passed.messages:
        for part in message.content if isinstance(message.content, list) else ():
            if part.type != "text":
                raise ApiError(
                    f"messages has a part of type {shown(part.type)}, and this endpoint takes "
                    "text only; send parts of type text",
                    param="messages",
                )


class Names:
    """Puts the served name into the server's answers.

    In JSON a quotation mark in a text is escaped, so the pattern matches a field and never text.

    Args:
        upstream: the model's name in the server, of letters, digits, `-`, `_` and `.`.
        served: the name for clients.
    """

    def __init__(self, upstream: str, served: str) -> None:
        named = json.dumps(served)
        spaces = () if upstream == served else ("", " ")
        self._pairs = [
            (f'"model":{space}{json.dumps(upstream)}'.encode(), f'"model":{space}{named}'.encode())
            for space in spaces
        ]

    def replaced(self, text: bytes) -> bytes:
        """Whole lines, or a whole body, with the served name."""
        for own, served in self._pairs:
            text = text.replace(own, served)
        return text
