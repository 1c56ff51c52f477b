"""`specdec top`. What speaks to a cluster is loaded when the command runs."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specdec.cli import options as a
from specdec.cli.cluster_options import Everywhere, KubeContext, Namespace, checked, scope
from specdec.client.errors import BadRequestError

if TYPE_CHECKING:
    from specdec.client.errors import ClientError
    from specdec.inspect.top import Row

# Seconds between readings: each costs the API server a request for every pod.
_SHORTEST, _LONGEST = 1.0, 3600.0


def top(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="A SpeculativeModel; without, every one.")
    ] = None,
    namespace: Namespace = None,
    all_namespaces: Everywhere = False,
    kube_context: KubeContext = None,
    interval: Annotated[float, typer.Option(help="Seconds that the figures are of.")] = 5.0,
    once: Annotated[bool, typer.Option("--once", help="Tell one interval and end.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object for each interval.")
    ] = False,
) -> None:
    """Show what every serving pod does now, by its own metrics.

    Reads port 8002 of the pods through the API server, which needs the right get on pods/proxy:
    the cluster roles admin and edit have it. Ctrl-C ends it.

    Exit status: 0 shown, 1 the API server refuses, 2 bad input or no such resource, 3 nobody
    answers.
    """
    with a.explained():
        checked(context.params)
        if not _SHORTEST <= interval <= _LONGEST:
            limits = f"{_SHORTEST:g} to {_LONGEST:g}"
            raise BadRequestError(f"--interval is {interval:g}; set it to {limits} seconds")
        try:
            asyncio.run(_top(context.params))
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


async def _top(given: Mapping[str, Any]) -> None:
    from specdec.inspect.session import logged_in
    from specdec.inspect.show import Display
    from specdec.inspect.top import Watch

    once = given["once"]
    async with logged_in(given["kube_context"]) as session:
        place = given["namespace"] or session.namespace
        watch = Watch(session.cluster, scope(given, place), given["name"])
        with Display(as_json=given["as_json"], once=once) as display:
            display.first(await watch.look())
            while True:
                await asyncio.sleep(given["interval"])
                rows = await watch.look(patient=not once)
                display.next(rows, watch.missed)
                if once:
                    break
    _end(rows)


def _end(rows: "list[Row]") -> None:
    """One sentence for each pod that told nothing, and the highest exit status of them."""
    failed: list[ClientError] = [row.error for row in rows if row.error is not None]
    for error in failed:
        typer.echo(f"specdec: {error}", err=True)
    if failed:
        raise typer.Exit(max(error.exit_status for error in failed))
