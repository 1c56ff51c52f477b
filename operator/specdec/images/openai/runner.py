"""Run an endpoint by uvicorn: the options that all endpoints share, its ports, and its end."""

import argparse
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import uvicorn
import uvloop
from starlette.types import ASGIApp
from typing_extensions import override

from specdec.images.openai.http import protocol
from specdec.images.openai.limits import Limits
from specdec.images.openai.off_loop import set_switch_interval

_BACKLOG = 2048


class Endpoint(Protocol):
    """What is run; `draining` becomes true at the first signal."""

    draining: bool

    def application(self) -> ASGIApp:
        """The ASGI application."""


def run(
    name: str,
    options: argparse.Namespace,
    serve: Callable[[argparse.Namespace], Coroutine[Any, Any, None]],
    errors: tuple[type[Exception], ...],
) -> int:
    """Serve until a signal; the exit code is 2 for a setting that cannot be used.

    Args:
        name: of the program, for messages.
        options: of the command line.
        serve: serves until a signal; see `serve` of this module.
        errors: what `serve` raises for such a setting.
    """
    set_switch_interval()
    try:
        uvloop.run(serve(options))
    except errors as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    return 0


def add_options(parser: argparse.ArgumentParser, port: int) -> None:
    """Add the options of address, limits and end; `port` is the default of its port."""
    add = parser.add_argument
    add("--host", default="0.0.0.0", help="the address on which to listen")  # noqa: S104
    add("--port", type=int, default=port, help="the port for clients")
    add("--max-body-bytes", type=int, default=Limits.body_bytes, help="limit of a request's body")
    add("--max-in-flight", type=int, default=Limits.in_flight, help="requests at a time")
    add("--timeout-seconds", type=float, default=Limits.seconds, help="for one answer")
    add("--drain-seconds", type=int, default=60, help="for answers in flight after SIGTERM")


def limits(options: argparse.Namespace) -> Limits:
    """The limits that the options set."""
    return Limits(
        body_bytes=options.max_body_bytes,
        in_flight=options.max_in_flight,
        seconds=options.timeout_seconds,
    )


async def serve(endpoint: Endpoint, options: argparse.Namespace, *more_ports: int) -> None:
    """Serve on the port of the options and on further ports, until a signal.

    Raises:
        OSError: a port is in use.
    """
    sockets = [_listening(options.host, port) for port in (options.port, *more_ports)]
    config = uvicorn.Config(
        endpoint.application(),
        http=protocol(limits(options)),
        ws="none",
        loop="none",
        lifespan="off",
        access_log=False,
        log_level="error",
        server_header=False,
        # Neither logs nor answers show the client's address, so no header has to provide it.
        proxy_headers=False,
        timeout_graceful_shutdown=options.drain_seconds,
    )
    await _Server(config, endpoint).serve(sockets)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        cause = os.strerror(error.errno or 0)
        raise OSError(f"cannot listen on {host}:{port} ({cause}); free it") from error


class _Server(uvicorn.Server):
    """Becomes unready at the first signal, and ends when its requests have ended."""

    def __init__(self, config: uvicorn.Config, endpoint: Endpoint) -> None:
        super().__init__(config)
        self._endpoint = endpoint

    @override
    def handle_exit(self, sig: int, frame: Any) -> None:
        self._endpoint.draining = True
        super().handle_exit(sig, frame)
        # After uvicorn has stopped, it raises captured signals again, so that a shell gets their
        # exit status. Without SIGTERM among them, the exit code is 0.
        if sig == signal.SIGTERM:
            self._captured_signals.clear()
