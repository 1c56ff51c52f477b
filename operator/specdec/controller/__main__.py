"""The operator's process: `python -m specdec.controller`.

It serves the probe, starts the `Runtime` and keeps the watches running until a signal stops it.
"""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Sequence

from pydantic import ValidationError

from specdec.cluster import ClusterError
from specdec.controller import handlers, probe, watching
from specdec.controller.runtime import Runtime
from specdec.controller.settings import Settings

logger = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the operator; returns the exit status of the process."""
    options = _parser().parse_args(arguments)
    handlers.configure_logging(**vars(options))
    try:
        asyncio.run(_operate())
    except asyncio.CancelledError:
        return 0  # a signal
    except (ValidationError, ClusterError, OSError) as error:
        logger.critical("the operator cannot start: %s", _one_line(error))
        return 1
    return 0


async def _operate() -> None:
    """Run until a signal cancels this task, which lets running reconciles finish.

    Raises:
        ValidationError: a setting is not valid.
        ClusterError: the login failed, or the resource definition is not installed.
        OSError: a port is in use.
    """
    _cancel_on_signals()
    settings = Settings()
    runtime = Runtime(settings)
    async with probe.serving(settings.health_port, runtime.check_health):
        await runtime.start()
        try:
            await watching.keep_watching(lambda: handlers.watch(runtime, settings.namespaces))
        finally:
            await runtime.stop()


def _cancel_on_signals() -> None:
    """Cancel this task at the first SIGTERM or SIGINT; later ones must not cancel its cleanup."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - this is a coroutine's helper

    def cancel(received: signal.Signals) -> None:
        if not task.cancelling():
            logger.info("%s: the operator stops", received.name)
            task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, cancel, number)


def _one_line(error: Exception) -> str:
    """A startup error in one sentence; an invalid setting is named by its variable."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        variable = "_".join(("SPECDEC", *map(str, first["loc"]))).upper()
        return f"{variable} is {first['input']!r}: {first['msg']}"
    return " ".join(str(error).split())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m specdec.controller",
        description="Run the operator. Its settings are environment variables SPECDEC_*.",
    )
    formats = handlers.LOG_FORMATS
    parser.add_argument("--log-format", choices=formats, default="full", help="format of the log")
    parser.add_argument("--verbose", action="store_true", help="log each request of the watches")
    parser.add_argument("--debug", action="store_true", help="log everything")
    parser.add_argument("--quiet", action="store_true", help="log only warnings and errors")
    prefix = argparse.BooleanOptionalAction
    parser.add_argument("--log-prefix", action=prefix, help="start messages with the resource")
    parser.add_argument("--log-refkey", help="key of the resource in JSON lines")
    return parser


if __name__ == "__main__":
    sys.exit(main())
