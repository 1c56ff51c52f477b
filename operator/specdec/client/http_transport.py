"""The HTTP transports of `generate.Client`: Triton's generate extension, and JSON APIs.

The benchmark's HTTP client reuses the functions for request bodies, events and errors.
"""

import json
import ssl
import time
from collections.abc import Collection, Generator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from specdec.client.connection import CONNECT_SECONDS, Connection
from specdec.client.errors import BadRequestError, ClientError, RefusedError, UnreachableError
from specdec.client.transport import Response, timed_out
from specdec.servers.encoding import Call, Declaration, JsonCall, Requests, TensorCall
from specdec.servers.tensor import Tensor

EVENT = b"data:"
# What some servers send at the end of a stream.
_DONE = b"[DONE]"


class Http:
    """Triton's HTTP endpoint; see `transport.Transport`.

    The extension flattens outputs: they are lists of values, without the tensor's shape.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def close(self) -> None:
        """Do nothing: every request has its own connection."""

    def model(self, name: str) -> Declaration:
        """Request the declaration of a model."""
        config = self._get(f"{path(name)}/config")
        decoupled = config.get("model_transaction_policy", {}).get("decoupled", False)
        ensemble = config.get("platform") == "ensemble"
        return Declaration(
            frozenset(tensor["name"] for tensor in config.get("input", ())),
            frozenset(tensor["name"] for tensor in config.get("output", ())),
            # An ensemble declares no transaction policy: it streams if its steps do.
            bool(decoupled) or ensemble,
            name,
            ensemble,
        )

    def responses(self, call: Call) -> Generator[Response, None, None]:
        """Send one request and yield its responses; closing the iterator ends the connection."""
        assert isinstance(call, TensorCall)  # noqa: S101 -- JSON APIs have another transport
        for event in self._events(f"{path(call.model)}/generate_stream", body(call.inputs)):
            yield arrays(event, call.outputs)

    def _get(self, path: str) -> dict[str, Any]:
        link = self._link(CONNECT_SECONDS)
        try:
            return read(self._reply(link, "GET", path).read())
        except (OSError, HTTPException) as error:
            raise self._client_error(error) from error
        finally:
            link.close()

    def _events(self, path: str, body: str) -> Generator[dict[str, Any], None, None]:
        """The events of a POST; closing the iterator ends the connection."""
        deadline = time.monotonic() + self._connection.timeout
        link = self._link(self._connection.timeout)
        try:
            for line in self._reply(link, "POST", path, body):
                if time.monotonic() > deadline:
                    raise timed_out(self._connection)
                event = event_of(line, self._connection.url)
                if event is not None:
                    yield event
        except (OSError, HTTPException) as error:
            raise self._client_error(error) from error
        finally:
            link.close()

    def _link(self, timeout: float) -> HTTPConnection:
        target = self._connection
        if not target.tls:
            return HTTPConnection(target.url, timeout=timeout)
        return HTTPSConnection(target.url, timeout=timeout, context=tls_context(target))

    def _reply(
        self, link: HTTPConnection, method: str, path: str, body: str | None = None
    ) -> HTTPResponse:
        headers = {**self._connection.headers, "content-type": "application/json"}
        link.request(method, path, body, headers)
        reply = link.getresponse()
        if reply.status != 200:
            raise refused(self._connection.url, reason(reply.read(), reply.status))
        return reply

    def _client_error(self, error: Exception) -> ClientError:
        if isinstance(error, TimeoutError):
            return timed_out(self._connection)
        return connection_failed(self._connection.url, error)


class JsonHttp(Http):
    """The JSON API of a kind of server; see `transport.Transport`."""

    def __init__(self, connection: Connection, requests: Requests) -> None:
        super().__init__(connection)
        self._requests = requests
        self._url = f"{connection.url}{connection.path}"

    @override
    def model(self, name: str) -> Declaration:
        """The declaration of a model; an empty name selects the only one of the server."""
        listing = self._requests.listing
        listed = self._get(f"{self._connection.path}/{listing}") if listing else {}
        return self._requests.declaration(name, self._url, listed)

    @override
    def responses(self, call: Call) -> Generator[Response, None, None]:
        """Send one request and yield its events; closing the iterator ends the connection."""
        assert isinstance(call, JsonCall)  # noqa: S101 -- models of Triton have other transports
        path = f"{self._connection.path}/{call.path}"
        yield from self._events(path, json.dumps(call.body))


def event_of(line: bytes, url: str) -> dict[str, Any] | None:
    """The event in a line of a stream, or the single response; None for a line without one.

    Raises:
        RefusedError: the event is an error, or is not JSON.
    """
    text = line.removeprefix(EVENT).strip()
    if not text or text == _DONE or text.startswith(b":"):
        return None
    event = read(text)
    if event.get("error"):
        raise refused(url, message_of(event["error"]))
    return event


def refused(url: str, message: str) -> RefusedError:
    """The error for a server that answered with the given error message."""
    return RefusedError(f"the server at {url} refused: {message}")


def connection_failed(url: str, cause: object) -> UnreachableError:
    """The error for a connection that could not be made, or that broke."""
    return UnreachableError(
        f"connection to {url} failed ({cause}); check the address, "
        "and that the server is ready and its port is forwarded"
    )


def tls_context(connection: Connection) -> ssl.SSLContext:
    """The TLS context with the files of a connection.

    Raises:
        BadRequestError: a file is not PEM.
    """
    try:
        context = ssl.create_default_context(cafile=connection.root_certificates)
        if connection.certificate_chain is not None:
            context.load_cert_chain(connection.certificate_chain, connection.private_key)
    except ssl.SSLError as error:
        raise BadRequestError(
            f"one of {', '.join(connection.files())} is not PEM ({error}); name another file"
        ) from error
    return context


def path(model: str) -> str:
    """The URL path of a model."""
    return f"/v2/models/{quote(model, safe='')}"


def body(tensors: Mapping[str, Tensor]) -> str:
    """The JSON body of a request; tensors have the shapes that the model declares."""
    return json.dumps({name: tensor.plain for name, tensor in tensors.items()})


def reason(text: bytes, status: int) -> str:
    """The server's error message, from the body of a response with another status than 200."""
    # A stream that fails immediately still has the format of an event.
    text = text.removeprefix(EVENT).strip()
    response = read(text) if text.startswith(b"{") else {}
    return message_of(response.get("error", f"HTTP {status}"))


def message_of(error: Any) -> str:
    """The message of an error: Triton sends a text, OpenAI an object with `message`."""
    return str(error.get("message", error) if isinstance(error, dict) else error)


def arrays(event: Mapping[str, Any], outputs: Collection[str]) -> Response:
    """The values of the requested outputs that an event contains."""
    return {name: _array(event[name]) for name in outputs if name in event}


def read(text: bytes) -> dict[str, Any]:
    """Parse a response or an event as a JSON object.

    Raises:
        RefusedError: it is no JSON object.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise RefusedError("the response is not JSON; give the HTTP port") from error
    if not isinstance(value, dict):
        raise RefusedError("the response is no JSON object; give the HTTP port")
    return value


def _array(value: Any) -> NDArray[Any]:
    values = value if isinstance(value, list) else [value]
    return np.array(values, object if values and isinstance(values[0], str) else None)
