"""Refuse to compare a service with itself."""

import socket

from specdec.client.connection import Connection
from specdec.client.errors import BadRequestError


def refuse_same(first: Connection, model: str, second: Connection, second_model: str) -> None:
    """Refuse two connections to one model of one server.

    Addresses are resolved, so that two names of one address are one server. Two pods behind
    different addresses, or a proxy, cannot be recognized.

    Raises:
        BadRequestError: both are the same.
    """
    if model != second_model or first.path != second.path:
        return
    if _addresses(first) & _addresses(second):
        raise BadRequestError(
            f"baseline url {second.url}{second.path} is the measured service itself, with "
            f"the same model {model}; give the URL of a service without speculation"
        )


def _addresses(connection: Connection) -> set[tuple[str, str]]:
    """The addresses of a host with the port; a host that cannot be resolved keeps its name."""
    host, _, port = connection.url.rpartition(":")
    host = host.strip("[]").lower()
    try:
        resolved = {str(item[4][0]) for item in socket.getaddrinfo(host, int(port))}
    except OSError:
        resolved = {host}
    # The loopback interface has one address for each version of IP.
    return {("127.0.0.1" if item == "::1" else item, port) for item in resolved}
