"""The command `specdec bench`; it imports the client only when it runs."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specdec.client.errors import BadRequestError
from specdec.tools.cli import options as opt
from specdec.tools.cli.cluster_options import KubeContext, Namespace
from specdec.tools.cli.forward import forwarded, read_resource

if TYPE_CHECKING:
    from specdec.client.connection import Connection
    from specdec.client.load.measurement import Measurement, Progress
    from specdec.client.load.report import Report
    from specdec.client.load.settings import Settings

# Unlike `generate`, this command uses HTTP unless --protocol is grpc.
Url = Annotated[
    str | None,
    typer.Option(
        help="host:port of Triton (default localhost:8000, 8001 for grpc), the base URL of an "
        "OpenAI endpoint, or specm/NAME or specm/NAME/v1 of a cluster."
    ),
]
_INTERRUPTED = 130
_FAILED = 1
# Interval between refreshes. A refresh takes a millisecond, which adds to measured latencies.
_REFRESH_SECONDS = 0.5

Protocol = Annotated[
    opt.Protocol, typer.Option(help="Protocol; http measures with less client overhead.")
]
BaselineUrl = Annotated[
    str | None,
    typer.Option(help="Service without speculation to compare with; default: --url itself."),
]
BaselineModel = Annotated[
    str | None, typer.Option(help="Model of --baseline-url; default: like --model.")
]
Single = Annotated[
    bool, typer.Option("--single", help="Measure without a baseline, and without a speed-up.")
]
Concurrency = Annotated[
    str, typer.Option(metavar="N,N,...", help="Concurrent clients; one level per number.")
]
DraftTokens = Annotated[
    str | None,
    typer.Option(metavar="N,N,...", help="Draft lengths to compare; default: the server's."),
]
Warmup = Annotated[
    int, typer.Option(help="Untimed requests per level and draft length; also for the baseline.")
]
ErrorLimit = Annotated[
    float, typer.Option(help="Percent of requests that may fail; above it, the exit status is 1.")
]
Confidence = Annotated[float, typer.Option(help="Level of the confidence intervals in percent.")]
Metrics = Annotated[
    str | None, typer.Option(help="host:port of the server's metrics, to measure energy.")
]
Csv = Annotated[str | None, typer.Option(help="File to write in the format of genai-perf.")]


def bench(
    context: typer.Context,
    prompt: opt.Prompts = None,
    prompt_file: opt.PromptFile = None,
    prompts_file: opt.PromptsFile = None,
    url: Url = None,
    protocol: Protocol = opt.Protocol.HTTP,
    model: opt.Model = None,
    baseline_url: BaselineUrl = None,
    baseline_model: BaselineModel = None,
    single: Single = False,
    concurrency: Concurrency = "1",
    draft_tokens: DraftTokens = None,
    requests: Annotated[
        int, typer.Option(help="Requests per level and draft length; also for the baseline.")
    ] = 24,
    output_tokens: Annotated[int, typer.Option(help="Tokens per response.")] = 128,
    warmup: Warmup = 1,
    seed: Annotated[int, typer.Option(help="Seed of the requests and of the bootstrap.")] = 0,
    error_limit: ErrorLimit = 1.0,
    confidence: Confidence = 95.0,
    metrics: Metrics = None,
    csv: Csv = None,
    html: Annotated[str | None, typer.Option(help="File to write a report with plots to.")] = None,
    timeout: opt.Timeout = 120.0,
    tls: opt.Tls = False,
    root: opt.Root = None,
    key: opt.Key = None,
    chain: opt.Chain = None,
    header: opt.Headers = None,
    namespace: Namespace = None,
    kube_context: KubeContext = None,
    as_json: opt.AsJson = False,
) -> None:
    """Measure a served model with and without speculation.

    The baseline and all draft lengths alternate, with the same prompts, seeds and response
    lengths. A service that drafts inside its engine is compared with another one: --baseline-url
    http://baseline:9000/v1. After Ctrl-C or a lost server it reports what was measured so far.

    Exit status: 0 measured, 1 too many requests failed, 2 bad input, 3 the server cannot be
    reached, 130 interrupted.
    """
    addresses = ("url", "baseline_url", "metrics")
    with opt.report_errors(), forwarded(context.params, *addresses) as params:
        status = _run(params, read_resource(params, url or ""))
    if status:
        raise typer.Exit(status)


def _run(params: Mapping[str, Any], resource: Mapping[str, Any] | None) -> int:
    from specdec.client.load.measurement import Measurement
    from specdec.tools.bench.subject import subject

    settings = _settings(params)
    for option in ("csv", "html"):
        _require_writable(f"--{option}", params[option])
    if params["html"]:
        _require_plots()
    connection, baseline = _connections(params)
    with _progress_bar(shown=not params["as_json"]) as update:
        measurement = Measurement(
            connection,
            settings,
            metrics_url=params["metrics"],
            on_progress=update,
            protocol=params["protocol"].value,
            baseline=baseline,
        )
        _measure(measurement)
    report = replace(measurement.report(), subject=subject(resource) if resource else {})
    _print(report, as_json=params["as_json"])
    if params["csv"]:
        from specdec.tools.bench.export import as_csv

        _write("--csv", params["csv"], as_csv(report))
    if params["html"]:
        from specdec.tools.bench.html import as_html

        _write("--html", params["html"], as_html(report))
    return _status(report)


def _connections(params: Mapping[str, Any]) -> "tuple[Connection, Connection | None]":
    url = params["baseline_url"]
    if url is None and params["baseline_model"]:
        raise BadRequestError("--baseline-model needs --baseline-url; give both or neither")
    baseline = opt.front_connection(params, url) if url else None
    return opt.front_connection(params, opt.address(params)), baseline


def _baseline_model(params: Mapping[str, Any], baseline: "Connection") -> str:
    return params["baseline_model"] or opt.model(params, baseline)


def _measure(measurement: "Measurement") -> None:
    try:
        asyncio.run(measurement.run())
    except KeyboardInterrupt:
        # The report covers the requests so far and shows that the run was interrupted.
        return


def _status(report: "Report") -> int:
    if report.ended == "interrupted":
        return _INTERRUPTED
    if report.ended == "unreachable":
        return 3
    return _FAILED if report.failed else 0


def _settings(params: Mapping[str, Any]) -> "Settings":
    from specdec.client.load.settings import PROMPTS, Settings

    own_prompts = any(params[name] for name in ("prompt", "prompt_file", "prompts_file"))
    lengths = params["draft_tokens"]
    connection, baseline = _connections(params)
    return Settings(
        prompts=opt.prompts(params) if own_prompts else PROMPTS,
        model=opt.model(params, connection),
        baseline_model="" if baseline is None else _baseline_model(params, baseline),
        single=params["single"],
        concurrency=_numbers("--concurrency", params["concurrency"]),
        requests=params["requests"],
        output_tokens=params["output_tokens"],
        draft_tokens=(None,) if lengths is None else _numbers("--draft-tokens", lengths),
        warmup=params["warmup"],
        seed=params["seed"],
        error_limit_percent=params["error_limit"],
        confidence_percent=params["confidence"],
    )


def _numbers(option: str, value: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in value.split(","))
    except ValueError:
        raise BadRequestError(
            f"{option} is {value!r}; write numbers with commas, for example 1,4,16"
        ) from None


def _require_writable(option: str, file: str | None) -> None:
    """Raise BadRequestError before the measurement, not hours later."""
    folder = Path(file).parent if file else Path()
    if file and (Path(file).is_dir() or not folder.is_dir()):
        raise BadRequestError(f"{option} {file} cannot be written; name a file in a folder")


def _require_plots() -> None:
    """Raise BadRequestError before the measurement if nothing can draw."""
    if find_spec("matplotlib") is None:
        raise BadRequestError(
            "--html needs matplotlib; run in the checkout: pip install '.[client,plots]'"
        )


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

    from specdec.tools.bench.table import sentences, table

    Console().print(table(report))
    for sentence in sentences(report):
        typer.echo(sentence)


@contextmanager
def _progress_bar(*, shown: bool) -> "Iterator[Callable[[Progress], None]]":
    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    with Bar(
        console=console, auto_refresh=False, disable=not (shown and console.is_terminal)
    ) as bar:
        task = bar.add_task("", total=None)
        refreshed = 0.0

        def update(progress: "Progress") -> None:
            nonlocal refreshed
            now = time.monotonic()
            if now - refreshed < _REFRESH_SECONDS and progress.done < progress.total:
                return
            refreshed = now
            text = f"concurrency {progress.concurrency}, draft tokens {_length(progress)}"
            bar.update(task, description=text, completed=progress.done, total=progress.total)
            bar.refresh()

        yield update


def _length(progress: "Progress") -> str:
    return "default" if progress.draft_tokens is None else str(progress.draft_tokens)
