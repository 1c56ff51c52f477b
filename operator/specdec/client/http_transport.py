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

_EVENT = b"data:"


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
            config = _json(self._reply(link, "GET", f"{_path(name)}/config").read())
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
        body = json.dumps({name: _plain(array) for name, array in tensors.items()})
        deadline = time.monotonic() + self._connection.timeout
        link = self._link(self._connection.timeout)
        try:
            reply = self._reply(link, "POST", f"{_path(model)}/generate_stream", body)
            for line in reply:
                if time.monotonic() > deadline:
                    raise late(self._connection)
                if line.startswith(_EVENT):
                    event = _json(line[len(_EVENT) :])
                    if "error" in event:
                        raise self._refused(event["error"])
                    yield {name: _array(event[name]) for name in outputs if name in event}
        except (OSError, HTTPException) as error:
            raise self._lost(error) from error
        finally:
            link.close()

    def _link(self, timeout: float) -> HTTPConnection:
        given = self._connection
        if not given.tls:
            return HTTPConnection(given.url, timeout=timeout)
        try:
            context = ssl.create_default_context(cafile=given.root_certificates)
            if given.certificate_chain is not None:
                context.load_cert_chain(given.certificate_chain, given.private_key)
        except ssl.SSLError as error:
            raise BadRequestError(
                f"a certificate of {', '.join(given.files())} is no PEM ({error}); name another"
            ) from error
        return HTTPSConnection(given.url, timeout=timeout, context=context)

    def _reply(
        self, link: HTTPConnection, method: str, path: str, body: str | None = None
    ) -> HTTPResponse:
        headers = {**self._connection.headers, "content-type": "application/json"}
        link.request(method, path, body, headers)
        reply = link.getresponse()
        if reply.status != 200:
            # An event stream that fails at once is still an event.
            text = reply.read().removeprefix(_EVENT).strip()
            told = _json(text) if text.startswith(b"{") else {}
            raise self._refused(told.get("error", f"HTTP {reply.status} {reply.reason}"))
        return reply

    def _refused(self, words: str) -> RefusedError:
        return RefusedError(f"the server at {self._connection.url} refused: {words}")

    def _lost(self, error: Exception) -> ClientError:
        if isinstance(error, TimeoutError):
            return late(self._connection)
        return UnreachableError(
            f"nobody answers at {self._connection.url} ({error}); check the address, "
            "and that the server is ready and port 8000 is forwarded"
        )


def _path(model: str) -> str:
    return f"/v2/models/{quote(model, safe='')}"


def _json(text: bytes) -> dict[str, Any]:
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
