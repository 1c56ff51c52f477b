"""The command `specdec verify`; it imports the client only when it runs."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specdec.client.errors import BadRequestError
from specdec.tools.cli import options as opt
from specdec.tools.cli.cluster_options import KubeContext, Namespace
from specdec.tools.cli.forward import forwarded

if TYPE_CHECKING:
    from specdec.client.dataset import Entry
    from specdec.client.verification import Comparison, Verification


class Against(StrEnum):
    """The baseline: how the target alone is called."""

    ENSEMBLE = "ensemble"
    BLS = "bls"
    TARGET = "target"


@dataclass
class _Counts:
    """The counts beside the progress bar."""

    compared: int = 0
    different: int = 0
    failed: int = 0

    def add(self, comparison: "Comparison") -> None:
        self.compared += 1
        self.failed += comparison.failure is not None
        self.different += comparison.failure is None and not comparison.matched


Url = Annotated[str, typer.Option(help="gRPC endpoint to verify, OpenAI URL, or specm/NAME.")]
BaselineUrl = Annotated[
    str | None, typer.Option(help="Endpoint of the target alone; default: --url.")
]
DraftUrl = Annotated[
    str | None, typer.Option(help="gRPC endpoint of the draft, for --client-loop.")
]
MetricsUrl = Annotated[
    str | None,
    typer.Option(help="Metrics endpoint, if responses have no draft token counts."),
]
BaselineModel = Annotated[
    str | None, typer.Option(help="Model of --baseline-url, in place of --against.")
]
Dataset = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="JSON lines with prompt, max_tokens; - is stdin."),
]
Limit = Annotated[int | None, typer.Option(help="Number of prompts to use, from the first.")]
DraftTokens = Annotated[
    int | None,
    typer.Option(help="Draft tokens per round; default: the server's; 4 with --client-loop."),
]
AgainstOption = Annotated[
    Against | None,
    typer.Option(help="Baseline; default: ensemble; with --client-loop: target."),
]
ClientLoop = Annotated[
    bool, typer.Option("--client-loop", help="Verify this client's loop instead of the BLS.")
]


def verify(
    context: typer.Context,
    url: Url = "localhost:8001",
    baseline_url: BaselineUrl = None,
    draft_url: DraftUrl = None,
    metrics_url: MetricsUrl = None,
    model: opt.Model = None,
    baseline_model: BaselineModel = None,
    dataset: Dataset = None,
    limit: Limit = None,
    max_tokens: opt.MaxTokens = 64,
    draft_tokens: DraftTokens = None,
    against: AgainstOption = None,
    client_loop: ClientLoop = False,
    concurrency: opt.ConcurrentPrompts = 8,
    timeout: opt.Timeout = 120.0,
    tls: opt.Tls = False,
    root: opt.Root = None,
    key: opt.Key = None,
    chain: opt.Chain = None,
    header: opt.Headers = None,
    namespace: Namespace = None,
    kube_context: KubeContext = None,
    as_json: opt.AsObject = False,
) -> None:
    """Compare outputs with those of the target alone.

    Sends every prompt twice with greedy sampling: with speculation and without. Compares token
    ids if both sides return them, and texts otherwise. Without --dataset it uses built-in prompts.
    A service that drafts inside its engine is compared with another:
    specdec verify --url http://eagle3:9000/v1 --baseline-url http://plain:9000/v1.

    Exit status: 0 all equal, 1 a difference, 2 bad input or a refused prompt, 3 a server cannot
    be reached.
    """
    addresses = ("url", "baseline_url", "draft_url", "metrics_url")
    with opt.report_errors(), forwarded(context.params, *addresses) as params:
        _run(params)


def _run(params: Mapping[str, Any]) -> None:
    import asyncio

    from specdec.client.verification import Options
    from specdec.client.verification import verify as run

    entries = _entries(params["dataset"], params["limit"])
    against = params["against"]
    server = opt.front_connection(params, params["url"])
    if params["baseline_model"] and not params["baseline_url"]:
        raise BadRequestError("--baseline-model needs --baseline-url; give both or neither")
    options = Options(
        max_tokens=params["max_tokens"],
        draft_tokens=params["draft_tokens"],
        against=None if against is None else against.value,
        client_loop=params["client_loop"],
        model=opt.model(params, server),
        baseline_model=params["baseline_model"],
    )
    connections = {
        name: None
        if params[f"{name}_url"] is None
        else opt.front_connection(params, params[f"{name}_url"])
        for name in ("baseline", "draft")
    }
    with _progress_bar(len(entries)) as update:
        result = asyncio.run(
            run(
                entries,
                options,
                server,
                baseline=connections["baseline"],
                draft=connections["draft"],
                metrics=params["metrics_url"],
                concurrency=params["concurrency"],
                on_result=update,
            )
        )
    _print(result, as_json=params["as_json"])
    if result.exit_status:
        raise typer.Exit(result.exit_status)


def _entries(file: str | None, limit: int | None) -> "list[Entry]":
    from specdec.client import dataset

    if limit is not None and limit < 1:
        raise BadRequestError(f"--limit is {limit}; set it to 1 or more, or leave it out")
    if file is None:
        return dataset.built_in()[:limit]
    return dataset.parse(opt.read(file, "--dataset"), f"--dataset {file}")[:limit]


@contextmanager
def _progress_bar(total: int) -> "Iterator[Callable[[Comparison], None]]":
    """A progress bar on stderr if it is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    counts = _Counts()
    columns = (
        TextColumn("verify"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[different]} different, {task.fields[failed]} failed"),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not sys.stderr.isatty()
    ) as bar:
        task = bar.add_task("", total=total, different=0, failed=0)

        def update(comparison: "Comparison") -> None:
            counts.add(comparison)
            bar.update(
                task,
                completed=counts.compared,
                different=counts.different,
                failed=counts.failed,
            )

        yield update


def _print(result: "Verification", *, as_json: bool) -> None:
    from specdec.tools.cli import verify_report

    for line in verify_report.failures(result):
        typer.echo(f"specdec: {line}", err=True)
    if as_json:
        typer.echo(json.dumps(result.to_json()))
    else:
        verify_report.show(result)
