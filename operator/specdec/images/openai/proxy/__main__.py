"""The container's program: `python -m specdec.images.openai.proxy --served-model-name NAME`."""

import argparse
import sys

from specdec.images.openai import runner
from specdec.images.openai.proxy.app import Proxy, ProxySettings
from specdec.images.openai.proxy.upstream import Upstream
from specdec.servers.kind import kind, kinds


def main(arguments: list[str] | None = None) -> int:
    """Serve until a signal; the exit code is 2 for a setting that cannot be used."""
    options = _parser().parse_args(arguments)
    return runner.run("specdec.images.openai.proxy", options, _serve, (OSError, ValueError))


async def _serve(options: argparse.Namespace) -> None:
    host, _, port = options.upstream.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"--upstream is {options.upstream!r}; give host:port")
    settings = ProxySettings(
        options.served_model_name,
        options.upstream_model,
        options.metrics_port,
        runner.limits(options),
        kind(options.kind),
    )
    proxy = Proxy(settings, Upstream(host, int(port)))
    await runner.serve(proxy, options, options.metrics_port)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Pass requests on to a server with OpenAI's API")
    add = parser.add_argument
    add("--served-model-name", required=True, help="the model's name in requests")
    add("--upstream", required=True, help="host:port of the server")
    add("--upstream-model", required=True, help="the model's name in the server")
    names = sorted(each.name for each in kinds())
    add("--kind", required=True, choices=names, help="the kind of the server")
    add("--metrics-port", type=int, default=8002, help="the port for metrics")
    runner.add_options(parser, port=8000)
    return parser


if __name__ == "__main__":
    sys.exit(main())
