"""The command `specdec top`; it imports the Kubernetes client only when it runs."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specdec.client.errors import BadRequestError
from specdec.tools.cli import options as opt
from specdec.tools.cli.cluster_options import (
    AllNamespaces,
    KubeContext,
    Namespace,
    check_names,
    scope,
)
from specdec.tools.cli.completion import resources

if TYPE_CHECKING:
    from specdec.client.errors import ClientError
    from specdec.tools.inspect.top import Row

# Limits of --interval: each read sends the API server one request per pod.
_SHORTEST, _LONGEST = 1.0, 3600.0


def top(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(help="A SpeculativeModel; default: all.", autocompletion=resources),
    ] = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    kube_context: KubeContext = None,
    interval: Annotated[float, typer.Option(help="Seconds between two reads.")] = 5.0,
    once: Annotated[bool, typer.Option("--once", help="Show one interval and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per interval.")] = False,
) -> None:
    """Show what every serving pod does now, from its metrics.

    Reads port 8002 of the pods through the API server. This needs the right to get pods/proxy,
    which the cluster roles admin and edit have. Ctrl-C ends it.

    Exit status: 0 shown, 1 the API server refuses, 2 bad input or no such resource, 3 the API
    server or a pod cannot be reached.
    """
    with opt.report_errors():
        check_names(context.params)
        if not _SHORTEST <= interval <= _LONGEST:
            limits = f"{_SHORTEST:g} to {_LONGEST:g}"
            raise BadRequestError(f"--interval is {interval:g}; set it to {limits} seconds")
        try:
            asyncio.run(_top(context.params))
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


async def _top(options: Mapping[str, Any]) -> None:
    from specdec.tools.inspect.session import logged_in
    from specdec.tools.inspect.show import Display
    from specdec.tools.inspect.top import Watch

    once = options["once"]
    async with logged_in(options["kube_context"]) as session:
        namespace = options["namespace"] or session.namespace
        watch = Watch(session.cluster, scope(options, namespace), options["name"])
        with Display(as_json=options["as_json"], once=once) as display:
            display.first(await watch.read())
            while True:
                await asyncio.sleep(options["interval"])
                rows = await watch.read(keep_last=not once)
                display.next(rows, watch.last_error)
                if once:
                    break
    _end(rows)


def _end(rows: "list[Row]") -> None:
    """Print the error of each pod, and exit with the highest status of them."""
    errors: list[ClientError] = [row.error for row in rows if row.error is not None]
    for error in errors:
        typer.echo(f"specdec: {error}", err=True)
    if errors:
        raise typer.Exit(max(error.exit_status for error in errors))
