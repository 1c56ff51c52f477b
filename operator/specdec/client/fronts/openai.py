"""The front end of an OpenAI endpoint: completions and chat completions.

`OpenAI` is the transport. It converts each event to the outputs that Triton's models have, so that
all answers are read in the same way. Token counts come from `usage`. Draft tokens come from the
field `metrics.speculative_decoding`, which only some servers have.
Source: https://platform.openai.com/docs/api-reference (completions, chat).
"""

import json
import time
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from specdec.client import http_transport as http
from specdec.client.answer import ALWAYS
from specdec.client.connection import CONNECT_SECONDS
from specdec.client.errors import BadRequestError
from specdec.client.fronts.text_model import NewText
from specdec.client.request import Request
from specdec.client.sampling import input_name, strings
from specdec.client.transport import Model, Outputs, timed_out

# This input distinguishes the endpoint from all models of Triton.
PROMPT = "prompt"
_MESSAGES = "messages"
_METRICS = "include_metrics"
_TOKENS = "num_output_tokens"
_INPUTS = frozenset(
    {
        *(PROMPT, _MESSAGES, "max_tokens", "stream", "stop", "temperature", "top_p", "seed"),
        *("presence_penalty", "frequency_penalty"),
    }
)
# These fields are not OpenAI's. specdec's endpoint has them all, and others may refuse them.
_OWN_INPUTS = frozenset(
    {"top_k", "min_tokens", "repetition_penalty", "num_draft_tokens", _METRICS}
)
_OWNER = "specdec"
_NAMES = {"text_input": PROMPT, "stop_words": "stop"}
_ALWAYS_ON = {"exclude_input_in_output", "return_perf_metrics"}
_COUNTS = {"return_num_input_tokens", "return_num_output_tokens"}
_DONE = b"[DONE]"


@dataclass(frozen=True)
class OpenAIFront:
    """The model of an OpenAI endpoint; see `protocol.Front`."""

    model: Model
    counts_tokens = True

    @property
    def drafts_by_request(self) -> bool:
        """Whether the endpoint is specdec's."""
        return "num_draft_tokens" in self.model.inputs

    def tensors(self, request: Request) -> dict[str, NDArray[Any]]:
        """The fields of the body, as arrays of shape [n]."""
        declared = self.model.inputs
        tensors: dict[str, NDArray[Any]] = {}
        for name, array in request.fields(()):
            if name not in _ALWAYS_ON | _COUNTS:
                own = _NAMES.get(name, name)
                tensors[input_name(own, declared, request.model)] = array
        if request.chat:
            tensors[_MESSAGES] = tensors.pop(PROMPT)
        if _METRICS in declared:
            tensors[_METRICS] = np.array([True])
        return tensors

    def outputs(self, request: Request) -> list[str]:
        """Text and counts."""
        return [*ALWAYS, _TOKENS]

    def reader(self, request: Request) -> NewText:
        """A reader of new text."""
        return NewText(frozenset({_TOKENS}) if request.token_counts else frozenset())


class OpenAI(http.Http):
    """An OpenAI endpoint; see `transport.Transport`."""

    @override
    def model(self, name: str) -> Model:
        """The declaration of a model; an empty name selects the only one of the endpoint."""
        link = self._link(CONNECT_SECONDS)
        try:
            path = f"{self._connection.path}/models"
            listed = http.read(self._reply(link, "GET", path).read()).get("data")
        except (OSError, HTTPException) as error:
            raise self._client_error(error) from error
        finally:
            link.close()
        items = listed if isinstance(listed, list) else []
        return _declared(name, [item for item in items if isinstance(item, dict)], self.url)

    @override
    def answers(
        self, model: str, tensors: Mapping[str, NDArray[Any]], outputs: Collection[str]
    ) -> Generator[Outputs, None, None]:
        """Send one request and yield its responses; closing the iterator ends the connection."""
        deadline = time.monotonic() + self._connection.timeout
        link = self._link(self._connection.timeout)
        try:
            path = f"{self._connection.path}/{operation(tensors)}"
            for line in self._reply(link, "POST", path, body(model, tensors)):
                if time.monotonic() > deadline:
                    raise timed_out(self._connection)
                event = event_of(line, self.url)
                if event is not None:
                    yield values(event)
        except (OSError, HTTPException) as error:
            raise self._client_error(error) from error
        finally:
            link.close()

    @property
    def url(self) -> str:
        """`host:port` with the path, for messages."""
        return f"{self._connection.url}{self._connection.path}"


def operation(tensors: Mapping[str, Any]) -> str:
    """The path of a request below the base URL."""
    return "chat/completions" if _MESSAGES in tensors else "completions"


def body(model: str, tensors: Mapping[str, NDArray[Any]]) -> str:
    """The JSON body of a request."""
    fields = {"model": model, **json.loads(http.body(tensors))}
    if _MESSAGES in fields:
        fields[_MESSAGES] = [{"role": "user", "content": fields[_MESSAGES]}]
    if fields.get("stream"):
        fields["stream_options"] = {"include_usage": True}
    return json.dumps(fields)


def event_of(line: bytes, url: str) -> dict[str, Any] | None:
    """The event in a line of a stream, or the single response; None for an empty line.

    Raises:
        RefusedError: the event is an error, or is not JSON.
    """
    text = line.removeprefix(http.EVENT).strip()
    if not text or text == _DONE or text.startswith(b":"):
        return None
    event = http.read(text)
    if event.get("error"):
        raise http.refused(url, http.message_of(event["error"]))
    return event


def values(event: Mapping[str, Any]) -> Outputs:
    """The event, by the names of Triton's outputs."""
    choices = event.get("choices") or [{}]
    choice = choices[0]
    message = choice.get("delta") or choice.get("message") or {}
    text = choice.get("text") or message.get("content") or ""
    outputs = {"text_output": strings((text,))}
    usage = event.get("usage") or {}
    if "completion_tokens" in usage:
        outputs[_TOKENS] = np.array([usage["completion_tokens"]])
    counted = (event.get("metrics") or {}).get("speculative_decoding") or {}
    if {"num_draft_tokens", "num_accepted_draft_tokens"} <= counted.keys():
        outputs["total_draft_tokens"] = np.array([counted["num_draft_tokens"]])
        outputs["total_accepted_draft_tokens"] = np.array([counted["num_accepted_draft_tokens"]])
    return outputs


def _declared(name: str, items: list[dict[str, Any]], url: str) -> Model:
    known = [str(item.get("id")) for item in items]
    if not name and len(known) == 1:
        [name] = known
    if name not in known:
        asked = f"{url} has no model {name}" if name else f"{url} has {len(known)} models"
        raise BadRequestError(f"{asked}; give --model with one of: {', '.join(known) or 'none'}")
    owner = items[known.index(name)].get("owned_by")
    inputs = _INPUTS | _OWN_INPUTS if owner == _OWNER else _INPUTS
    return Model(inputs, frozenset({*ALWAYS, _TOKENS}), streams=True, name=name)
