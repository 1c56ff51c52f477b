"""Open the endpoint of a server; only the module of the selected protocol is imported."""

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Literal

from specdec.client.connection import Connection
from specdec.client.load.endpoint import Endpoint
from specdec.servers.encoding import Requests

Protocol = Literal["grpc", "http"]


def endpoint(
    connection: Connection, protocol: Protocol, requests: Requests | None = None
) -> AbstractAsyncContextManager[Endpoint]:
    """Open the endpoint of a server: a JSON API if its URL has a path, else Triton's.

    Args:
        connection: to the server.
        protocol: of Triton's endpoint.
        requests: how a JSON API is asked; None takes it for OpenAI's.
    """
    if connection.path:
        from specdec.client.load.http_endpoint import Json
        from specdec.servers.openai_api import OPENAI

        return nullcontext(Json(connection, requests or OPENAI))
    if protocol == "http":
        from specdec.client.load.http_endpoint import Http

        # Only its clients hold connections, and each closes its own.
        return nullcontext(Http(connection))
    from specdec.client.load.grpc_endpoint import Grpc

    return Grpc(connection)
