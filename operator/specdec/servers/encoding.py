"""What a kind of server makes of a request, and how it reads the responses; plain values.

`client` turns the tensors of a `TensorCall` into protobuf or JSON, and sends the body of a
`JsonCall` as it is.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from specdec.servers.chunk import Chunk
from specdec.servers.errors import BadRequestError
from specdec.servers.request import Request
from specdec.servers.sampling import has_input
from specdec.servers.tensor import Tensor


@dataclass(frozen=True)
class Declaration:
    """What a server declares about a model.

    Attributes:
        inputs, outputs: names of tensors, or of the fields of a JSON API.
        streams: the model can send an answer in several responses.
        name: the server's name for the model.
        ensemble: the model is a pipeline of other models, which Triton runs.
    """

    inputs: frozenset[str]
    outputs: frozenset[str]
    streams: bool
    name: str
    ensemble: bool = False


@dataclass(frozen=True)
class TensorCall:
    """A request to a model of Triton.

    Attributes:
        model: its name.
        inputs: by name.
        outputs: names of the outputs to return.
    """

    model: str
    inputs: Mapping[str, Tensor]
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class JsonCall:
    """A POST to a JSON API.

    Attributes:
        path: below the base path of the API.
        body: the JSON object.
    """

    path: str
    body: Mapping[str, Any]


Call = TensorCall | JsonCall


class Reader(Protocol):
    """Reads the responses of one answer, in their order."""

    def read(self, response: Mapping[str, Any]) -> Chunk | None:
        """The chunk of a response; None if the response has no text.

        Args:
            response: arrays by the names of Triton's outputs, or the JSON object of an event.
        """

    def end(self) -> Chunk | None:
        """What the reader still holds after the last response; None without anything."""


class Requests(ABC):
    """How one kind of server is asked: a value without state.

    Attributes:
        model: name of the model for clients; empty if a server has only one.
        path: base path of its JSON API, like /v1; empty if it speaks Triton's protocols.
        drafts_by_request: a request can turn drafts off, so that a service has its own baseline.
        greedy: fields of a `Request` that make its answer greedy.
        listing: path of a GET that lists the models of a JSON API; empty without one.
        tokenizer: the Triton model that tokenizes prompts for clients; empty without one.
        whole_texts: each response has the whole text so far. The server may cut a stop string that
            it has already sent in part, so the reader of a stream has to find its end.
        one_end: the model knows one end token; the texts of others are sent as stop words.
        log_probs: the output with the log probabilities of new tokens.
    """

    model: str = ""
    path: str = ""
    drafts_by_request: bool = False
    greedy: Mapping[str, Any] = MappingProxyType({})
    listing: str = ""
    tokenizer: str = ""
    whole_texts: bool = False
    one_end: bool = False
    log_probs: str = "output_log_probs"

    @abstractmethod
    def encode(self, request: Request, declared: Declaration) -> Call:
        """The call that sends a request.

        Raises:
            BadRequestError: the model has no input for a value of the request.
        """

    @abstractmethod
    def reader(self, request: Request) -> Reader:
        """A new reader for the answer to a request."""

    def takes(self, inputs: frozenset[str]) -> bool:
        """Whether a model of Triton with these inputs is asked in this way."""
        return False

    def declaration(self, name: str, url: str, listed: Mapping[str, Any]) -> Declaration:
        """What the server of a JSON API declares about a model.

        Args:
            name: of the model; empty for the only one.
            url: of the API, for messages.
            listed: the answer to `listing`.

        Raises:
            BadRequestError: the server has no such model.
        """
        return Declaration(frozenset(), frozenset(), streams=True, name=name)

    def takes_draft_length(self, declared: Declaration) -> bool:
        """Whether requests to this model select the number of draft tokens; 0 turns drafts off."""
        return False

    def counts_tokens(self, declared: Declaration) -> bool:
        """Whether answers of this model can report the number of their tokens."""
        return False

    def streams_rounds(self, declared: Declaration) -> bool:
        """Whether each response of this model's stream is one round of draft and target."""
        return False

    def ends_at_stop(self, declared: Declaration) -> bool:
        """Whether the model ends its output before a stop string; others may go on behind it."""
        return False

    def shortens_limits(self, declared: Declaration) -> bool:
        """Whether the model shortens a limit of tokens to the room that the prompt leaves."""
        return False

    def takes_parameter(self, name: str, declared: Declaration) -> bool:
        """Whether a request may have a sampling parameter, by its name in `Sampling`."""
        return has_input(name, declared.inputs)

    def repeats_samples(self, declared: Declaration) -> bool:
        """Whether the model gives sampled requests without a seed the same answer."""
        return False

    def gives_log_probs(self, declared: Declaration) -> bool:
        """Whether answers of this model can have the log probabilities of their tokens."""
        return "return_log_probs" in declared.inputs

    def read_log_probs(self, output: bytes) -> Sequence[float]:
        """The log probabilities of new tokens, from the bytes of the output `log_probs`."""
        return struct.unpack(f"<{len(output) // 4}f", output)

    def stop(self, declared: Declaration) -> TensorCall | None:
        """The call that stops a request with the same id; None if the stream is cancelled."""
        return None


# Fields of a request about its drafts, by the names of the BLS.
_DRAFTS = ("num_draft_tokens", "use_draft_logits", "lookup_scope")


def refuse_draft_field(name: str, model: str) -> None:
    """Refuse a field about drafts for a model that drafts inside its engine.

    Args:
        name: of the field, as the BLS has it.
        model: that has no such input.

    Raises:
        BadRequestError: with the fix.
    """
    if name in _DRAFTS:
        raise BadRequestError(
            f"model {model} drafts inside its engine, and has no input {name}; leave it out"
        )


def refuse_chat(request: Request) -> None:
    """Refuse a chat for a model that continues texts.

    Raises:
        BadRequestError: with the fix.
    """
    if request.chat:
        raise BadRequestError(
            f"model {request.model} takes text and no chat; leave out --chat, or give the URL "
            "of an OpenAI endpoint"
        )
