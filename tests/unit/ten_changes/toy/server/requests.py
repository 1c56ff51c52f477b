"""Requests to the toy server: a list of pieces after a text."""

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from specdec.servers.chunk import Chunk
from specdec.servers.encoding import Declaration, JsonCall, Requests
from specdec.servers.request import Request


class ToyRequests(Requests):
    """No request selects drafts or samples, and each answer is whole."""

    path = "/toy"

    @override
    def declaration(self, name: str, url: str, listed: Mapping[str, Any]) -> Declaration:
        del url, listed
        return Declaration(frozenset(), frozenset(), streams=False, name=name)

    @override
    def encode(self, request: Request, declared: Declaration) -> JsonCall:
        del declared
        return JsonCall("continue", {"after": request.prompt, "count": request.max_tokens})

    @override
    def reader(self, request: Request) -> "Pieces":
        del request
        return Pieces()


class Pieces:
    """Reads the only response."""

    def read(self, response: Mapping[str, Any]) -> Chunk:
        text = " ".join(response["pieces"])
        return Chunk(text, beams=(text,))

    def end(self) -> None:
        """Nothing is held back."""


REQUESTS = ToyRequests()
