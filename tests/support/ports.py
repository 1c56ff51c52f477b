"""Ports of loopback for the servers of tests, reserved until the test is done with them."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def reserved(count: int) -> Iterator[list[int]]:
    """Yield free ports of loopback; until the end, the kernel chooses them for no one else.

    A port that was free a moment ago can be lost before its server listens: to another server of
    the tests, or to an outgoing connection. Here a socket stays bound to the port, but does not
    listen. A server that sets `SO_REUSEADDR`, as all servers of the tests do, can then listen on
    the port (socket(7)), while Linux avoids it for port 0 and for connections.
    """
    with ExitStack() as sockets:
        ports = []
        for _ in range(count):
            bound = sockets.enter_context(socket.socket())
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(("127.0.0.1", 0))
            ports.append(int(bound.getsockname()[1]))
        yield ports
