"""What a client needs to know about a front end. One module per front end implements it."""

from typing import Any, Protocol

from numpy.typing import NDArray

from specdec.client.answer import Chunk
from specdec.client.errors import BadRequestError
from specdec.client.request import Request
from specdec.client.transport import Model, Outputs


class Reader(Protocol):
    """Reads the responses of one answer, in their order."""

    def read(self, outputs: Outputs) -> Chunk | None:
        """The chunk of a response; None if the response has no text output."""

    def end(self) -> Chunk | None:
        """The text that the reader still holds after the last response; None without any."""


class Front(Protocol):
    """One kind of model.

    Attributes:
        drafts_by_request: requests select the number of draft tokens; 0 disables speculation.
        counts_tokens: answers can report the number of their tokens.
    """

    @property
    def drafts_by_request(self) -> bool:
        """Whether requests select the number of draft tokens."""

    @property
    def counts_tokens(self) -> bool:
        """Whether answers can report the number of their tokens."""

    def tensors(self, request: Request) -> dict[str, NDArray[Any]]:
        """The request, by the model's input names.

        Raises:
            BadRequestError: the model has no input for a value of the request.
        """

    def outputs(self, request: Request) -> list[str]:
        """The names of the outputs to request."""

    def reader(self, request: Request) -> Reader:
        """A new reader for the answer to a request."""


def check_streaming(request: Request, model: Model, url: str) -> None:
    """Refuse a streaming request to a model that does not stream.

    Raises:
        BadRequestError: with the fix.
    """
    if request.stream and not model.streams:
        raise BadRequestError(
            f"model {request.model} at {url} does not stream; "
            "send the request without streaming, or set spec.serving.streaming to true"
        )
