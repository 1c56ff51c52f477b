"""`specdec bench`. What speaks to a server is loaded when the command runs."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specdec.cli import options as a
from specdec.client.errors import BadRequestError
from specdec.triton.repository import BLS

if TYPE_CHECKING:
    from specdec.bench.report import Report
    from specdec.bench.run import Measurement, Progress
    from specdec.bench.settings import Settings

_INTERRUPTED = 130
_FAILED = 1
# Drawing takes a millisecond that the clocks of running requests see.
_DRAW_SECONDS = 0.5


def bench(
    context: typer.Context,
    prompt: a.Prompts = None,
    prompt_file: a.PromptFile = None,
    prompts_file: a.PromptsFile = None,
    url: a.Url = None,
    protocol: Annotated[
        a.Protocol, typer.Option(help="What is spoken there; http times nearer to the server's.")
    ] = a.Protocol.HTTP,
    model: Annotated[str, typer.Option(help="Has the input num_draft_tokens.")] = BLS,
    concurrency: Annotated[
        str, typer.Option(metavar="N,N,...", help="Clients at once, a level each.")
    ] = "1",
    draft_tokens: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="Lengths to compare; default: the server's own."),
    ] = None,
    requests: Annotated[int, typer.Option(help="Of each arm at each level.")] = 24,
    output_tokens: Annotated[int, typer.Option(help="Length of every answer.")] = 128,
    warmup: Annotated[
        int, typer.Option(help="Untimed requests of an arm before a level; 0: none.")
    ] = 1,
    seed: Annotated[int, typer.Option(help="Of requests and of the bootstrap.")] = 0,
    error_limit: Annotated[
        float, typer.Option(help="Percent of requests that may fail; above, exit status 1.")
    ] = 1.0,
    confidence: Annotated[float, typer.Option(help="Percent, of the intervals.")] = 95.0,
    metrics: Annotated[
        str | None, typer.Option(help="host:port of the server's metrics, for its energy.")
    ] = None,
    csv: Annotated[str | None, typer.Option(help="Write genai-perf's columns there.")] = None,
    html: Annotated[str | None, typer.Option(help="Write a report with plots there.")] = None,
    timeout: a.Timeout = 120.0,
    tls: a.Tls = False,
    root: a.Root = None,
    key: a.Key = None,
    chain: a.Chain = None,
    header: a.Headers = None,
    as_json: a.AsJson = False,
) -> None:
    """Measure a served model with and without speculation.

    Both arms take turns on the same connections, with the same prompts, seeds and lengths of
    answers.
    Interrupted by Ctrl-C or by a server that goes away, it reports what there is.

    Exit status: 0 measured, 1 too many requests failed, 2 bad input, 3 nobody answers,
    130 interrupted.
    """
    with a.explained():
        status = _run(context.params)
    if status:
        raise typer.Exit(status)


def _run(given: Mapping[str, Any]) -> int:
    from specdec.bench.run import Measurement

    settings = _settings(given)
    for option in ("csv", "html"):
        _writable(f"--{option}", given[option])
    where = a.connection(given, a.address(given))
    with _bar(shown=not given["as_json"]) as tell:
        measurement = Measurement(
            where,
            settings,
            metrics_url=given["metrics"],
            tell=tell,
            protocol=given["protocol"].value,
        )
        _measure(measurement)
    report = measurement.report()
    _print(report, as_json=given["as_json"])
    if given["csv"]:
        from specdec.bench.export import as_csv

        _write("--csv", given["csv"], as_csv(report))
    if given["html"]:
        from specdec.bench.html import as_html

        _write("--html", given["html"], as_html(report))
    return _status(report)


def _measure(measurement: "Measurement") -> None:
    try:
        asyncio.run(measurement.run())
    except KeyboardInterrupt:
        # The report says that the run was interrupted; it has everything up to here.
        return


def _status(report: "Report") -> int:
    if report.ended == "interrupted":
        return _INTERRUPTED
    if report.ended == "unreachable":
        return 3
    return _FAILED if report.failed else 0


def _settings(given: Mapping[str, Any]) -> "Settings":
    from specdec.bench.settings import PROMPTS, Settings

    asked = any(given[name] for name in ("prompt", "prompt_file", "prompts_file"))
    lengths = given["draft_tokens"]
    return Settings(
        prompts=a.prompts(given) if asked else PROMPTS,
        model=given["model"],
        concurrency=_numbers("--concurrency", given["concurrency"]),
        requests=given["requests"],
        output_tokens=given["output_tokens"],
        draft_tokens=(None,) if lengths is None else _numbers("--draft-tokens", lengths),
        warmup=given["warmup"],
        seed=given["seed"],
        error_limit_percent=given["error_limit"],
        confidence_percent=given["confidence"],
    )


def _numbers(option: str, given: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in given.split(","))
    except ValueError:
        raise BadRequestError(
            f"{option} is {given!r}; write numbers with commas between, for example 1,4,16"
        ) from None


def _writable(option: str, file: str | None) -> None:
    """A file that cannot be written is told before hours of measuring, not after."""
    folder = Path(file).parent if file else Path()
    if file and (Path(file).is_dir() or not folder.is_dir()):
        raise BadRequestError(f"{option} {file} cannot be written; name a file in a folder")


def _write(option: str, file: str, text: str) -> None:
    try:
        Path(file).write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise BadRequestError(f"{option} {file} cannot be written ({error})") from error


def _print(report: "Report", *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(report.as_json()))
        return
    from rich.console import Console

    from specdec.bench.table import sentences, table

    Console().print(table(report))
    for sentence in sentences(report):
        typer.echo(sentence)


@contextmanager
def _bar(*, shown: bool) -> "Iterator[Callable[[Progress], None]]":
    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    with Bar(
        console=console, auto_refresh=False, disable=not (shown and console.is_terminal)
    ) as bar:
        task = bar.add_task("", total=None)
        drawn = 0.0

        def tell(progress: "Progress") -> None:
            nonlocal drawn
            now = time.monotonic()
            if now - drawn < _DRAW_SECONDS and progress.done < progress.total:
                return
            drawn = now
            words = f"{progress.concurrency} at once, draft tokens {_length(progress)}"
            bar.update(task, description=words, completed=progress.done, total=progress.total)
            bar.refresh()

        yield tell


def _length(progress: "Progress") -> str:
    return "default" if progress.draft_tokens is None else str(progress.draft_tokens)
