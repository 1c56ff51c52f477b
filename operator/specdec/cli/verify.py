"""`specdec verify`. What speaks to a server is loaded when the command runs."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specdec.cli import options as a
from specdec.client.errors import BadRequestError
from specdec.client.names import BLS

if TYPE_CHECKING:
    from specdec.client.dataset import Entry
    from specdec.client.verification import Comparison, Verification


class Against(StrEnum):
    """What the target alone is asked through."""

    ENSEMBLE = "ensemble"
    BLS = "bls"
    TARGET = "target"


@dataclass
class _Live:
    """What the progress bar says beside its length."""

    compared: int = 0
    different: int = 0
    failed: int = 0

    def add(self, comparison: "Comparison") -> None:
        self.compared += 1
        self.failed += comparison.failure is not None
        self.different += comparison.failure is None and not comparison.matched


def verify(
    context: typer.Context,
    url: Annotated[str, typer.Option(help="gRPC of what is verified.")] = "localhost:8001",
    baseline_url: Annotated[
        str | None, typer.Option(help="gRPC of the target alone; default: the same server.")
    ] = None,
    draft_url: Annotated[
        str | None, typer.Option(help="gRPC of the draft, for --client-loop with two servers.")
    ] = None,
    metrics_url: Annotated[
        str | None,
        typer.Option(help="Metrics of what is verified, where answers tell no draft tokens."),
    ] = None,
    model: Annotated[
        str, typer.Option(help="What is verified; takes text as the BLS does.")
    ] = BLS,
    dataset: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="JSON lines with prompt, max_tokens; - is stdin."),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="The first so many prompts.")] = None,
    max_tokens: a.MaxTokens = 64,
    draft_tokens: Annotated[
        int | None, typer.Option(help="Draft tokens a round; default: the server's.")
    ] = None,
    against: Annotated[
        Against | None,
        typer.Option(help="Baseline; default: ensemble, with --client-loop target."),
    ] = None,
    client_loop: Annotated[
        bool, typer.Option("--client-loop", help="Verify the loop of this client, not the BLS.")
    ] = False,
    concurrency: Annotated[int, typer.Option(help="Prompts at a time.")] = 8,
    timeout: a.Timeout = 120.0,
    tls: a.Tls = False,
    root: a.Root = None,
    key: a.Key = None,
    chain: a.Chain = None,
    header: a.Headers = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Compare answers with those of the target alone, token by token.

    Asks every prompt twice, greedily: with speculation, and without. Without --dataset the prompts
    are built in.

    Exit status: 0 all equal, 1 a difference, 2 bad input or a prompt that is refused, 3 nobody
    answers.
    """
    with a.explained():
        _run(context.params)


def _run(given: Mapping[str, Any]) -> None:
    import asyncio

    from specdec.client.verification import Options
    from specdec.client.verification import verify as run

    entries = _entries(given["dataset"], given["limit"])
    against = given["against"]
    options = Options(
        max_tokens=given["max_tokens"],
        draft_tokens=given["draft_tokens"],
        against=None if against is None else against.value,
        client_loop=given["client_loop"],
        model=given["model"],
    )
    others = {
        name: None if given[f"{name}_url"] is None else a.connection(given, given[f"{name}_url"])
        for name in ("baseline", "draft")
    }
    with _progress(len(entries)) as tell:
        told = asyncio.run(
            run(
                entries,
                options,
                a.connection(given, given["url"]),
                baseline=others["baseline"],
                draft=others["draft"],
                metrics=given["metrics_url"],
                concurrency=given["concurrency"],
                tell=tell,
            )
        )
    _tell(told, as_json=given["as_json"])
    if told.exit_status:
        raise typer.Exit(told.exit_status)


def _entries(file: str | None, limit: int | None) -> "list[Entry]":
    from specdec.client import dataset

    if limit is not None and limit < 1:
        raise BadRequestError(f"--limit is {limit}; set it to 1 or more, or leave it out")
    if file is None:
        return dataset.built_in()[:limit]
    return dataset.parse(a.read(file, "--dataset"), f"--dataset {file}")[:limit]


@contextmanager
def _progress(total: int) -> "Iterator[Callable[[Comparison], None]]":
    """A bar on stderr while prompts are compared; none where nobody watches."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    live = _Live()
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

        def tell(comparison: "Comparison") -> None:
            live.add(comparison)
            bar.update(task, completed=live.compared, different=live.different, failed=live.failed)

        yield tell


def _tell(told: "Verification", *, as_json: bool) -> None:
    from specdec.cli import verify_report

    for line in verify_report.failures(told):
        typer.echo(f"specdec: {line}", err=True)
    if as_json:
        typer.echo(json.dumps(told.to_json()))
    else:
        verify_report.show(told)
