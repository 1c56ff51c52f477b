"""A fake of the endpoint's backend that answers with a script."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from specdec.client.answer import Counts
from specdec.images.openai.app import Endpoint
from specdec.images.openai.assembly import Piece
from specdec.images.openai.checkpoint import ChatFormat
from specdec.images.openai.errors import ApiError
from specdec.images.openai.request import Served
from specdec.images.openai.settings import EndpointSettings
from specdec.images.openai.template import Templates
from specdec.servers.bls.requests import REQUESTS
from specdec.servers.encoding import Declaration
from specdec.servers.request import Request
from specdec.triton import contract
from specdec.triton.model_names import BLS


def declared(version: str) -> Served:
    """Return the declaration of the BLS in the layout of a release."""
    inputs = frozenset(tensor.name for tensor in contract.inputs(BLS, version))
    outputs = frozenset(tensor.name for tensor in contract.outputs(BLS, version))
    return Served(REQUESTS, Declaration(inputs, outputs, True, BLS), max_seq_len=512)


SERVED = declared("1.2.1")
# The BLS of this release reports no counts of tokens.
OLDER = declared("0.19.0")
TEMPLATE = (
    "{% if messages[0].role == 'assistant' %}{{ raise_exception('roles must alternate') }}"
    "{% endif %}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if tools %}[{{ tools | length }} tools]{% endif %}<assistant>"
)


def pieces(*texts: str) -> list[Piece | ApiError]:
    return [
        Piece(text, 1, 7, Counts(2 * number, number), (-0.5,), (0, number))
        for number, text in enumerate(texts, 1)
    ]


@dataclass
class FakeBackend:
    """Answers every request with the script; waits forever before the piece with number `held`."""

    script: Sequence[Piece | ApiError] = ()
    declaration: Served = SERVED
    is_ready: bool = True
    held: int | None = None
    requests: list[Request] = field(default_factory=list)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: asyncio.Event = field(default_factory=asyncio.Event)

    async def served(self) -> Served:
        return self.declaration

    async def ready(self) -> bool:
        return self.is_ready

    async def prompt_tokens(self, prompt: str) -> int | None:
        return len(prompt)

    async def pieces(
        self, request: Request, served: Served, *, histogram: bool = False
    ) -> AsyncGenerator[Piece, None]:
        self.requests.append(request)
        try:
            for number, item in enumerate(self.script):
                if number == self.held:
                    self.waiting.set()
                    await asyncio.Event().wait()
                if isinstance(item, ApiError):
                    raise item
                yield item
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled.set()
            raise


def endpoint(backend: FakeBackend, settings: EndpointSettings | None = None) -> Endpoint:
    form = ChatFormat(TEMPLATE)
    return Endpoint(settings or EndpointSettings("llama"), backend, Templates(form))
