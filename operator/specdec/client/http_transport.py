"""One request and its responses over HTTP: Triton's generate extension and its event stream."""

import json
import ssl
import time
from collections.abc import Collection, Generator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from specdec.client.connection import CONNECT_SECONDS, Connection
from specdec.client.errors import BadRequestError, ClientError, RefusedError, UnreachableError
from specdec.client.transport import Model, Outputs, late

EVENT = b"data:"


class Http:
    """Triton's HTTP endpoint; see `transport.Transport`.

    Outputs come as the extension flattens them: a list of values, without the tensor's shape.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def close(self) -> None:
        """Nothing is kept open between requests."""

    def model(self, name: str) -> Model:
        """What a model declares."""
        link = self._link(CONNECT_SECONDS)
        try:
            config = read(self._reply(link, "GET", f"{path(name)}/config").read())
        except (OSError, HTTPException) as error:
            raise self._lost(error) from error
        finally:
            link.close()
        decoupled = config.get("model_transaction_policy", {}).get("decoupled", False)
        return Model(
            frozenset(tensor["name"] for tensor in config.get("input", ())),
            frozenset(tensor["name"] for tensor in config.get("output", ())),
            # An ensemble has no policy of its own: it streams when its steps do.
            bool(decoupled) or config.get("platform") == "ensemble",
        )

    def answers(
        self, model: str, tensors: Mapping[str, NDArray[Any]], outputs: Collection[str]
    ) -> Generator[Outputs, None, None]:
        """The responses to one request; abandoning the iterator closes the connection."""
        sent = body(tensors)
        deadline = time.monotonic() + self._connection.timeout
        link = self._link(self._connection.timeout)
        try:
            reply = self._reply(link, "POST", f"{path(model)}/generate_stream", sent)
            for line in reply:
                if time.monotonic() > deadline:
                    raise late(self._connection)
                if line.startswith(EVENT):
                    event = read(line[len(EVENT) :])
                    if "error" in event:
                        raise refused(self._connection.url, event["error"])
                    yield arrays(event, outputs)
        except (OSError, HTTPException) as error:
            raise self._lost(error) from error
        finally:
            link.close()

    def _link(self, timeout: float) -> HTTPConnection:
        given = self._connection
        if not given.tls:
            return HTTPConnection(given.url, timeout=timeout)
        return HTTPSConnection(given.url, timeout=timeout, context=tls_context(given))

    def _reply(
        self, link: HTTPConnection, method: str, path: str, body: str | None = None
    ) -> HTTPResponse:
        headers = {**self._connection.headers, "content-type": "application/json"}
        link.request(method, path, body, headers)
        reply = link.getresponse()
        if reply.status != 200:
            raise refused(self._connection.url, reason(reply.read(), reply.status))
        return reply

    def _lost(self, error: Exception) -> ClientError:
        if isinstance(error, TimeoutError):
            return late(self._connection)
        return nobody(self._connection.url, error)


def refused(url: str, words: str) -> RefusedError:
    """The server answered with an error; `words` are its own."""
    return RefusedError(f"the server at {url} refused: {words}")


def nobody(url: str, error: object) -> UnreachableError:
    """Nothing that speaks HTTP is there, or it went away."""
    return UnreachableError(
        f"nobody answers at {url} ({error}); check the address, "
        "and that the server is ready and port 8000 is forwarded"
    )


def tls_context(connection: Connection) -> ssl.SSLContext:
    """What an encrypted connection is made with.

    Raises:
        BadRequestError: a file is no PEM.
    """
    try:
        context = ssl.create_default_context(cafile=connection.root_certificates)
        if connection.certificate_chain is not None:
            context.load_cert_chain(connection.certificate_chain, connection.private_key)
    except ssl.SSLError as error:
        raise BadRequestError(
            f"a certificate of {', '.join(connection.files())} is no PEM ({error}); name another"
        ) from error
    return context


def path(model: str) -> str:
    """Where a model is on its server."""
    return f"/v2/models/{quote(model, safe='')}"


def body(tensors: Mapping[str, NDArray[Any]]) -> str:
    """A request of the generate extension; tensors have the shapes that the model declares."""
    return json.dumps({name: _plain(array) for name, array in tensors.items()})


def reason(text: bytes, status: int) -> str:
    """Why a request was refused, from the body of an answer that is not 200."""
    # An event stream that fails at once is still an event.
    text = text.removeprefix(EVENT).strip()
    told = read(text) if text.startswith(b"{") else {}
    return str(told.get("error", f"HTTP {status}"))


def arrays(event: Mapping[str, Any], outputs: Collection[str]) -> Outputs:
    """An event's values, as far as they are wanted and there."""
    return {name: _array(event[name]) for name in outputs if name in event}


def read(text: bytes) -> dict[str, Any]:
    """The JSON object that an answer or an event is.

    Raises:
        RefusedError: it is none.
    """
    try:
        told = json.loads(text)
    except ValueError as error:
        raise RefusedError("what answers there speaks no JSON; give Triton's HTTP port") from error
    if not isinstance(told, dict):
        raise RefusedError("what answers there is no Triton; give its HTTP port")
    return told


def _plain(array: NDArray[Any]) -> Any:
    values = [v.decode() if isinstance(v, bytes) else v for v in array.reshape(-1).tolist()]
    return values[0] if len(values) == 1 else values


def _array(value: Any) -> NDArray[Any]:
    values = value if isinstance(value, list) else [value]
    return np.array(values, object if values and isinstance(values[0], str) else None)
