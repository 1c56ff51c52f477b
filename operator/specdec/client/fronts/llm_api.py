"""The front end of TensorRT-LLM's LLM API on Triton: backend PyTorch.

Its inputs have other names than those of the BLS, and no request selects draft tokens. Each
response of its stream has the whole text so far.
Source: `triton_backend/all_models/llmapi` of TensorRT-LLM.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from specdec.client.answer import ALWAYS, Chunk, chunk
from specdec.client.errors import BadRequestError
from specdec.client.request import Request
from specdec.client.sampling import input_name
from specdec.client.transport import Model, Outputs

PREFIX = "sampling_param_"
MAX_TOKENS = f"{PREFIX}max_tokens"
_PERFORMANCE = f"{PREFIX}return_perf_metrics"
_NAMES = {
    "text_input": "text_input",
    "stream": "streaming",
    "stop_words": f"{PREFIX}stop",
    "exclude_input_in_output": f"{PREFIX}exclude_input_from_output",
}
# Releases that lack these inputs have the requested value as their default.
_LEFT_OUT = {f"{PREFIX}exclude_input_from_output", _PERFORMANCE}
# A text ends with this character as long as its last character is incomplete.
_INCOMPLETE = "\ufffd"


def own_name(name: str) -> str:
    """The LLM API's name of an input; `name` is the BLS's name, as `Request` uses it."""
    return _NAMES.get(name, f"{PREFIX}{name}")


@dataclass(frozen=True)
class LlmApi:
    """A model with the input `sampling_param_max_tokens`; see `protocol.Front`."""

    model: Model
    drafts_by_request = False
    counts_tokens = False

    def tensors(self, request: Request) -> dict[str, NDArray[Any]]:
        """Arrays of shape [n], by the names of the LLM API's sampling parameters."""
        if request.chat:
            raise BadRequestError(
                f"model {request.model} takes text and no chat; leave out --chat, or give the URL "
                "of an OpenAI endpoint"
            )
        if request.draft_tokens is not None or request.use_draft_logits is not None:
            raise BadRequestError(
                f"model {request.model} drafts inside its engine, and no request changes that; "
                "leave out draft tokens and draft logits"
            )
        declared = self.model.inputs
        tensors: dict[str, NDArray[Any]] = {}
        for name, array in request.fields({"return_perf_metrics"}):
            own = own_name(name)
            if own in declared:
                tensors[own] = array
            elif own not in _LEFT_OUT:
                # `input_name` raises the error for an input that the model lacks.
                tensors[input_name(name, declared, request.model)] = array
        return tensors

    def outputs(self, request: Request) -> list[str]:
        """Text and counts."""
        return [name for name in ALWAYS if name in self.model.outputs]

    def reader(self, request: Request) -> "TextSoFar":
        """A reader of whole texts."""
        return TextSoFar()


@dataclass
class NewText:
    """Cuts the whole text so far to what is new in it.

    It holds back a character that is not complete, because a later text replaces it.
    """

    _text: str = ""
    _given: int = 0

    def of(self, text: str) -> str:
        """What a text adds to the earlier texts."""
        self._text = text
        return self._until(len(text.rstrip(_INCOMPLETE)))

    def rest(self) -> str:
        """The rest of a text that ends within a character."""
        return self._until(len(self._text))

    def _until(self, end: int) -> str:
        new = self._text[self._given : end]
        self._given = max(self._given, end)
        return new


@dataclass
class TextSoFar:
    """Reads responses with the whole text so far; see `protocol.Reader`."""

    _new: NewText = field(default_factory=NewText)

    def read(self, outputs: Outputs) -> Chunk | None:
        """The chunk with the new part of the text."""
        part = chunk(outputs, frozenset())
        if part is None:
            return None
        text = self._new.of(part.text)
        return replace(part, text=text, beams=(text,))

    def end(self) -> Chunk | None:
        """The rest of a text that ends within a character."""
        text = self._new.rest()
        return Chunk(text, beams=(text,)) if text else None
