"""The benchmark's endpoint for OpenAI's completions; it shares the clients of `http_endpoint`.

The events of an answer are decoded together: `usage` and the counts of draft tokens come after the
last text, and are no chunk of their own.
"""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from specdec.client.fronts import openai
from specdec.client.grpc_calls import Tensors
from specdec.client.load.exchange import lines
from specdec.client.load.http_endpoint import Http
from specdec.client.sampling import strings
from specdec.client.transport import Model


class OpenAI(Http):
    """See `endpoint.Endpoint`."""

    @override
    async def model(self, name: str) -> Model:
        return await asyncio.to_thread(openai.OpenAI(self._connection).model, name)

    @override
    def message(
        self, model: str, tensors: Tensors, outputs: Collection[str], *, streamed: bool
    ) -> bytes:
        path = f"{self._connection.path}/{openai.operation(tensors)}"
        return self._post(path, openai.body(model, tensors))

    @override
    def _decoder(self) -> "CompletionDecoder":
        return CompletionDecoder(self._connection.url)


@dataclass(frozen=True)
class CompletionDecoder:
    """Decodes the body of a response to chunks with text; see `exchange.Decoder`.

    Attributes:
        url: of the server, for messages.
    """

    url: str

    def __call__(
        self, arrivals: Sequence[float], bodies: Sequence[bytes]
    ) -> Iterator[tuple[float, Tensors]]:
        """Yield each text with the arrival time of its line; the last one has the counts.

        Raises:
            RefusedError: an event is an error, or is not JSON.
        """
        texts: list[tuple[float, Tensors]] = []
        counts: dict[str, Any] = {}
        for arrival, line in lines(arrivals, bodies):
            event = openai.event_of(line, self.url)
            if event is None:
                continue
            outputs = dict(openai.values(event))
            text = outputs.pop("text_output")
            counts |= outputs
            if text[0]:
                texts.append((arrival, {"text_output": text}))
        if not texts and arrivals:
            texts.append((arrivals[-1], {"text_output": strings(("",))}))
        yield from texts[:-1]
        for arrival, last in texts[-1:]:
            yield arrival, {**last, **counts}
