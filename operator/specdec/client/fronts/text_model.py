"""The front end of TensorRT-LLM's guides: the BLS and the ensemble, with text input."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from specdec.client.answer import ALWAYS, Chunk, chunk
from specdec.client.errors import BadRequestError
from specdec.client.request import Request
from specdec.client.transport import Model, Outputs


@dataclass(frozen=True)
class TextModel:
    """A model with the inputs `text_input` and `max_tokens`; see `protocol.Front`.

    Each response of its stream has new text only.
    """

    model: Model

    @property
    def drafts_by_request(self) -> bool:
        """Whether the model is a BLS."""
        return "num_draft_tokens" in self.model.inputs

    @property
    def counts_tokens(self) -> bool:
        """Whether the release can report token counts."""
        return "return_num_output_tokens" in self.model.inputs

    def tensors(self, request: Request) -> dict[str, NDArray[Any]]:
        """Arrays of shape [1, n], by the input names that the model declares."""
        if request.chat:
            raise BadRequestError(
                f"model {request.model} takes text and no chat; leave out --chat, or give the URL "
                "of an OpenAI endpoint"
            )
        return request.tensors(self.model.inputs)

    def outputs(self, request: Request) -> list[str]:
        """Text, counts and the requested optional outputs."""
        names = (*ALWAYS, *sorted(request.optional_outputs()))
        return [name for name in names if name in self.model.outputs]

    def reader(self, request: Request) -> "NewText":
        """A reader of new text."""
        return NewText(request.optional_outputs())


@dataclass(frozen=True)
class NewText:
    """Reads responses with new text only; see `protocol.Reader`."""

    requested: frozenset[str]

    def read(self, outputs: Outputs) -> Chunk | None:
        """The chunk of a response."""
        return chunk(outputs, self.requested)

    def end(self) -> None:
        """Return None: this reader holds no text."""
