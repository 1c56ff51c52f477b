"""The OpenAI endpoint as its program starts it, with a script in place of the Triton server.

Run it with `python -m support.scripted_endpoint` and the options of `specdec.images.openai`. Each
request gets one piece of text. A prompt that contains `HOLD` gets no piece, and one that contains
`ENDLESS` gets pieces until its client leaves.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator
from typing import Any, Self

from specdec.images.openai import __main__ as program
from specdec.images.openai.assembly import Piece
from specdec.images.openai.request import Served
from specdec.servers.bls.requests import REQUESTS
from specdec.servers.encoding import Declaration
from specdec.servers.request import Request
from specdec.triton import contract
from specdec.triton.model_names import BLS

HOLD, ENDLESS = "hold on", "endless"
_RELEASE = "1.2.1"
_PIECE = 8192


class Script:
    """A model server that answers without a model."""

    def __init__(self, *_: object) -> None:
        inputs = frozenset(tensor.name for tensor in contract.inputs(BLS, _RELEASE))
        outputs = frozenset(tensor.name for tensor in contract.outputs(BLS, _RELEASE))
        model = Declaration(inputs, outputs, True, BLS)
        self._served = Served(REQUESTS, model, max_seq_len=8192)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def ready(self) -> bool:
        return True

    async def served(self) -> Served:
        return self._served

    async def prompt_tokens(self, prompt: str) -> int | None:
        return len(prompt)

    async def pieces(
        self, request: Request, served: Served, *, histogram: bool = False
    ) -> AsyncGenerator[Piece, None]:
        if HOLD in request.prompt:
            await asyncio.Event().wait()
        while ENDLESS in request.prompt:
            yield Piece("x" * _PIECE, 1, 1)
            await asyncio.sleep(0)
        yield Piece("ok", 1, 1)


def main() -> int:
    """Serve until a signal."""
    replaced: Any = program
    replaced.Triton = Script
    return program.main()


if __name__ == "__main__":
    sys.exit(main())
