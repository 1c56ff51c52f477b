"""A decoding path through any front end; see `decoding_paths.DecodingPath`.

It verifies the LLM API and OpenAI endpoints, with `generate.Client`.
"""

import asyncio

from specdec.client.connection import Connection
from specdec.client.decoding_paths import PathAnswer
from specdec.client.errors import BadRequestError
from specdec.client.generate import Client
from specdec.client.request import Request


class FrontPath:
    """One model of one service, which decodes greedily.

    Args:
        connection: to the service.
        model: its name; empty selects the only one of an OpenAI endpoint.
    """

    def __init__(self, connection: Connection, model: str) -> None:
        self.connection = connection
        self.model = model

    async def check(self) -> None:
        """Check that the service has the model, and learn its name.

        Raises:
            BadRequestError: the model is missing.
        """
        self.model = await asyncio.to_thread(self._resolved)

    async def answer(self, prompt: str, max_tokens: int) -> PathAnswer:
        """Send one request without streaming."""
        # Some servers sample by default, for example OpenAI's with temperature 1.
        temperature = 0.0 if self.connection.path else None
        request = Request(
            prompt, self.model, max_tokens=max_tokens, stream=False, temperature=temperature
        )

        def ask() -> PathAnswer:
            with Client(self.connection) as client:
                answer = client.ask(request)
            return PathAnswer(answer.text, counts=answer.counts)

        return await asyncio.to_thread(ask)

    def _resolved(self) -> str:
        with Client(self.connection) as client:
            model = client.model(self.model)
        if not model.inputs & {"text_input", "prompt"}:
            raise BadRequestError(
                f"model {self.model} at {self.connection.url} takes no text; name another model"
            )
        return model.name or self.model
