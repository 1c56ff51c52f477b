"""The program of the container: `python -m specdec.images.openai --served-model-name NAME`."""

import argparse
import gc
import signal
import sys
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from typing_extensions import override

from specdec.client.connection import Connection
from specdec.client.errors import ClientError
from specdec.images.openai import checkpoint
from specdec.images.openai.app import Endpoint
from specdec.images.openai.checkpoint import ChatFormat, CheckpointError
from specdec.images.openai.http import protocol
from specdec.images.openai.limits import Limits
from specdec.images.openai.off_loop import set_switch_interval
from specdec.images.openai.parsers import REASONING, TOOLS
from specdec.images.openai.settings import DEFAULT, Settings
from specdec.images.openai.template import Templates, TemplateStartError
from specdec.images.openai.triton import Triton
from specdec.servers.kind import kind, kinds


def main(arguments: list[str] | None = None) -> int:
    """Serve until a signal; the exit code is 2 for a setting that cannot be used."""
    options = _parser().parse_args(arguments)
    set_switch_interval()
    try:
        uvloop.run(_serve(options))
    except (CheckpointError, ClientError, TemplateStartError) as error:
        print(f"specdec.images.openai: {error}", file=sys.stderr)
        return 2
    return 0


async def _serve(options: argparse.Namespace) -> None:
    form = ChatFormat()
    if options.tokenizer is not None:
        form = checkpoint.read(options.tokenizer, options.chat_template)
    templates = Templates(form)
    await templates.start()
    limits = Limits(
        body_bytes=options.max_body_bytes,
        in_flight=options.max_in_flight,
        seconds=options.timeout_seconds,
    )
    server = kind(options.kind)
    settings = Settings(
        served_name=options.served_model_name,
        kind=server,
        model=options.model or server.requests.model,
        tool_parser=options.tool_call_parser,
        reasoning_parser=options.reasoning_parser,
        limits=limits,
        metrics_url=options.metrics_url,
    )
    connection = Connection(options.url, options.timeout_seconds)
    try:
        async with Triton(connection, settings.model, settings.kind.requests) as triton:
            endpoint = Endpoint(settings, triton, templates)
            # Objects that exist now live as long as the process. A search for garbage among them
            # would stop all streams for 20 ms.
            gc.collect()
            gc.freeze()
            await _Server(_config(options, endpoint), endpoint).serve()
    finally:
        await templates.close()


def _config(options: argparse.Namespace, endpoint: Endpoint) -> uvicorn.Config:
    return uvicorn.Config(
        endpoint.application(),
        host=options.host,
        port=options.port,
        http=protocol(endpoint.settings.limits),
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Serve the OpenAI API for a Triton server")
    add = parser.add_argument
    add("--served-model-name", required=True, help="the model's name in requests")
    add("--url", default="127.0.0.1:8001", help="host:port of Triton's gRPC endpoint")
    add("--metrics-url", default=Settings.metrics_url, help="host:port of Triton's metrics")
    names = sorted(each.name for each in kinds())
    add("--kind", default=DEFAULT.name, choices=names, help="the kind of the server")
    add("--model", default="", help="the Triton model; the kind's own by default")
    add("--host", default="0.0.0.0", help="the address on which to listen")  # noqa: S104
    add("--port", type=int, default=9000, help="the port on which to listen")
    add("--tokenizer", type=Path, help="the tokenizer's directory, for the chat template")
    add("--chat-template", type=Path, help="a file that replaces the checkpoint's template")
    add("--tool-call-parser", choices=sorted(TOOLS), help="how tool calls are written")
    add("--reasoning-parser", choices=sorted(REASONING), help="how reasoning is written")
    add("--max-body-bytes", type=int, default=Limits.body_bytes, help="limit of a request's body")
    add("--max-in-flight", type=int, default=Limits.in_flight, help="requests at a time")
    add("--timeout-seconds", type=float, default=Limits.seconds, help="for one answer")
    add("--drain-seconds", type=int, default=60, help="for answers in flight after SIGTERM")
    return parser


if __name__ == "__main__":
    sys.exit(main())
