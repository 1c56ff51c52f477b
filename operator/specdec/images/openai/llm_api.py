"""The client of the LLM API's model, which has other inputs and always sends the whole text.

The model reports no token counts, so answers have no usage. It drafts by itself, so requests have
no draft length.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace

import numpy as np
from typing_extensions import override

from specdec.client.errors import ClientError
from specdec.client.fronts.llm_api import NewText, own_name
from specdec.client.grpc_calls import Tensors
from specdec.client.request import Request
from specdec.images.openai.assembly import Piece
from specdec.images.openai.errors import unavailable
from specdec.images.openai.request import Served
from specdec.images.openai.triton import Triton

# Input names of the LLM API's model, by the names that `Request` uses.
_INPUTS: Mapping[str, str] = {
    name: own_name(name)
    for name in (
        "text_input",
        "stream",
        "stop_words",
        "exclude_input_in_output",
        "return_perf_metrics",
        "max_tokens",
        "temperature",
        "top_k",
        "top_p",
        "seed",
        "presence_penalty",
        "frequency_penalty",
    )
}


class LlmApi(Triton):
    """A server with the LLM API's model. See `ModelServer`."""

    @override
    async def served(self) -> Served:
        try:
            config = await self._server.config(self._model)
        except ClientError as error:
            raise unavailable(str(error)) from error
        declared = {tensor.name for tensor in config.input}
        return Served(
            frozenset(name for name, theirs in _INPUTS.items() if theirs in declared),
            frozenset(tensor.name for tensor in config.output),
            config.model_transaction_policy.decoupled,
        )

    @override
    async def prompt_tokens(self, prompt: str) -> int | None:
        return None

    @override
    def tensors(self, request: Request, served: Served) -> Tensors:
        """The request by the model's names, as arrays of shape [n]: the model takes one prompt."""
        ours = request.tensors(served.inputs)
        if request.stream:
            # The server would cut a text at a stop string, so a text could be shorter than that of
            # the previous response. Therefore the endpoint ends the answer itself.
            ours.pop("stop_words", None)
        named = {_INPUTS[name]: array.reshape(-1) for name, array in ours.items()}
        return {**named, "return_finish_reason": np.array([True])}

    @override
    def stop_call(self, served: Served) -> tuple[str, Tensors]:
        text = np.array([b""], dtype=np.object_)
        return self._model, {"text_input": text, "stop": np.array([True])}

    @override
    async def pieces(
        self, request: Request, served: Served, *, histogram: bool = False
    ) -> AsyncGenerator[Piece, None]:
        """As `Triton.pieces`, with only the new text of each response, and never a histogram."""
        new = NewText()
        async with aclosing(super().pieces(request, served)) as responses:
            async for response in responses:
                text = new.of(response.text)
                yield replace(response, text=text + new.rest() if response.reason else text)
