"""The program of the container: `python -m specdec.images.openai --served-model-name NAME`."""

import argparse
import gc
import sys
from pathlib import Path

from specdec.client.connection import Connection
from specdec.client.errors import ClientError
from specdec.images.openai import checkpoint, runner
from specdec.images.openai.app import Endpoint
from specdec.images.openai.checkpoint import ChatFormat, CheckpointError
from specdec.images.openai.parsers import REASONING, TOOLS
from specdec.images.openai.sampling import GREEDY, Defaults
from specdec.images.openai.settings import DEFAULT, EndpointSettings
from specdec.images.openai.template import Templates, TemplateStartError
from specdec.images.openai.triton import Triton
from specdec.servers.kind import kind, kinds

_CHECKPOINT, _GREEDY = "Checkpoint", "Greedy"


def main(arguments: list[str] | None = None) -> int:
    """Serve until a signal; the exit code is 2 for a setting that cannot be used."""
    errors = (OSError, CheckpointError, ClientError, TemplateStartError)
    return runner.run("specdec.images.openai", _parser().parse_args(arguments), _serve, errors)


async def _serve(options: argparse.Namespace) -> None:
    form, defaults, ends = ChatFormat(), Defaults(), dict[str, bool]()
    if options.tokenizer is not None:
        defaults = checkpoint.defaults(options.tokenizer)
        ends = checkpoint.ends(options.tokenizer)
        form = checkpoint.read(options.tokenizer, options.chat_template)
    templates = Templates(form)
    await templates.start()
    server = kind(options.kind)
    settings = EndpointSettings(
        served_name=options.served_model_name,
        kind=server,
        model=options.model or server.requests.model,
        tool_parser=options.tool_call_parser,
        reasoning_parser=options.reasoning_parser,
        defaults=GREEDY if options.default_decoding == _GREEDY else defaults,
        ends=ends,
        limits=runner.limits(options),
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
            await runner.serve(endpoint, options)
    finally:
        await templates.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Serve the OpenAI API for a Triton server")
    add = parser.add_argument
    add("--served-model-name", required=True, help="the model's name in requests")
    add("--url", default="127.0.0.1:8001", help="host:port of Triton's gRPC endpoint")
    add(
        "--metrics-url", default=EndpointSettings.metrics_url, help="host:port of Triton's metrics"
    )
    names = sorted(each.name for each in kinds())
    add("--kind", default=DEFAULT.name, choices=names, help="the kind of the server")
    add("--model", default="", help="the Triton model; the kind's own by default")
    add("--tokenizer", type=Path, help="the tokenizer's directory, for the chat template")
    add("--chat-template", type=Path, help="a file that replaces the checkpoint's template")
    add("--tool-call-parser", choices=sorted(TOOLS), help="how tool calls are written")
    add("--reasoning-parser", choices=sorted(REASONING), help="how reasoning is written")
    choices = (_CHECKPOINT, _GREEDY)
    help_ = "of requests without a temperature: the checkpoint's generation_config.json, or greedy"
    add("--default-decoding", choices=choices, default=_CHECKPOINT, help=help_)
    runner.add_options(parser, port=9000)
    return parser


if __name__ == "__main__":
    sys.exit(main())
