"""The container's program: `python -m specdec.images.openai.proxy --served-model-name NAME`."""

import argparse
import signal
import socket
import sys
from typing import Any

import uvicorn
import uvloop
from typing_extensions import override

from specdec.images.openai.http import protocol
from specdec.images.openai.limits import Limits
from specdec.images.openai.off_loop import set_switch_interval
from specdec.images.openai.proxy.app import Proxy, Settings
from specdec.images.openai.proxy.upstream import Upstream
from specdec.servers.kind import kind, kinds

_BACKLOG = 2048


def main(arguments: list[str] | None = None) -> int:
    """Serve until a signal; the exit code is 2 for a setting that cannot be used."""
    options = _parser().parse_args(arguments)
    set_switch_interval()
    try:
        uvloop.run(_serve(options))
    except (OSError, ValueError) as error:
        print(f"specdec.images.openai.proxy: {error}", file=sys.stderr)
        return 2
    return 0


async def _serve(options: argparse.Namespace) -> None:
    host, _, port = options.upstream.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"--upstream is {options.upstream!r}; give host:port")
    limits = Limits(
        body_bytes=options.max_body_bytes,
        in_flight=options.max_in_flight,
        seconds=options.timeout_seconds,
    )
    settings = Settings(
        options.served_model_name,
        options.upstream_model,
        options.metrics_port,
        limits,
        kind(options.kind),
    )
    proxy = Proxy(settings, Upstream(host, int(port)))
    config = uvicorn.Config(
        proxy.application(),
        http=protocol(limits),
        ws="none",
        loop="none",
        lifespan="off",
        access_log=False,
        log_level="error",
        server_header=False,
        timeout_graceful_shutdown=options.drain_seconds,
    )
    sockets = [_listening(options.host, each) for each in (options.port, options.metrics_port)]
    await _Server(config, proxy).serve(sockets)


def _listening(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=_BACKLOG)
    except OSError as error:
        raise OSError(f"cannot listen on {host}:{port} ({error.strerror}); free it") from error


class _Server(uvicorn.Server):
    """Becomes unready at the first signal, and ends when its requests have ended."""

    def __init__(self, config: uvicorn.Config, proxy: Proxy) -> None:
        super().__init__(config)
        self._proxy = proxy

    @override
    def handle_exit(self, sig: int, frame: Any) -> None:
        self._proxy.draining = True
        super().handle_exit(sig, frame)
        # After uvicorn has stopped, it raises captured signals again, so that a shell gets their
        # exit status. Without SIGTERM among them, the exit code is 0.
        if sig == signal.SIGTERM:
            self._captured_signals.clear()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Pass requests on to a server with OpenAI's API")
    add = parser.add_argument
    add("--served-model-name", required=True, help="the model's name in requests")
    add("--upstream", required=True, help="host:port of the server")
    add("--upstream-model", required=True, help="the model's name in the server")
    names = sorted(each.name for each in kinds())
    add("--kind", required=True, choices=names, help="the kind of the server")
    add("--host", default="0.0.0.0", help="the address on which to listen")  # noqa: S104
    add("--port", type=int, default=8000, help="the port for clients")
    add("--metrics-port", type=int, default=8002, help="the port for metrics")
    add("--max-body-bytes", type=int, default=Limits.body_bytes, help="limit of a request's body")
    add("--max-in-flight", type=int, default=Limits.in_flight, help="requests at a time")
    add("--timeout-seconds", type=float, default=Limits.seconds, help="for one answer")
    add("--drain-seconds", type=int, default=60, help="for answers in flight after SIGTERM")
    return parser


if __name__ == "__main__":
    sys.exit(main())
