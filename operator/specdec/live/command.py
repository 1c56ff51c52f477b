"""`specdec status` and `specdec top`. What speaks to a cluster is loaded when a command runs."""

import asyncio
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specdec.client import arguments as a
from specdec.client.errors import BadRequestError

if TYPE_CHECKING:
    from specdec.client.errors import ClientError
    from specdec.live.top import Row

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
# Seconds between looks: each costs the API server a request for every pod.
_SHORTEST, _LONGEST = 1.0, 3600.0

KubeContext = Annotated[
    str | None, typer.Option("--context", help="Of the kubeconfig; default: its current one.")
]
Namespace = Annotated[
    str | None, typer.Option("-n", "--namespace", help="Default: the context's own.")
]
Everywhere = Annotated[bool, typer.Option("-A", "--all-namespaces", help="Of every namespace.")]


def status(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="A SpeculativeModel; without, a table of all.")
    ] = None,
    namespace: Namespace = None,
    all_namespaces: Everywhere = False,
    kube_context: KubeContext = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a resource.")] = False,
) -> None:
    """Say where every stage of a resource stands, what works on it and what was measured.

    Reads SpeculativeModels, Jobs, pods and their logs with the rights of your kubeconfig, and
    writes nothing.

    Exit status: 0 shown, 1 the API server refuses, 2 bad input or no such resource, 3 nobody
    answers.
    """
    with a.explained():
        _check(context.params)
        asyncio.run(_status(context.params))


async def _status(given: Mapping[str, Any]) -> None:
    from specdec.live import status as live
    from specdec.live.session import logged_in

    name = given["name"]
    async with logged_in(given["kube_context"]) as session:
        place = given["namespace"] or session.namespace
        if name is None:
            found = await live.read_all(session.cluster, _where(given, place))
        else:
            found = [await live.read(session.cluster, place, name)]
    if given["as_json"]:
        for one in found:
            typer.echo(json.dumps(one))
    else:
        _tell(found, name, "any namespace" if given["all_namespaces"] else f"namespace {place}")
    notes = [note for one in found for note in one.get("notes", ())]
    for note in notes:
        typer.echo(f"specdec: {note}", err=True)
    if notes:
        raise typer.Exit(1)


def _tell(found: list[dict[str, Any]], name: str | None, where: str) -> None:
    from datetime import UTC, datetime

    from specdec.live import tree
    from specdec.terminal import screen

    if name is not None:
        tree.show(screen(), found[0], datetime.now(UTC))
    elif found:
        tree.show_all(screen(), found, datetime.now(UTC))
    else:
        typer.echo(f"no SpeculativeModel in {where}", err=True)


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
        _check(context.params)
        if not _SHORTEST <= interval <= _LONGEST:
            limits = f"{_SHORTEST:g} to {_LONGEST:g}"
            raise BadRequestError(f"--interval is {interval:g}; set it to {limits} seconds")
        try:
            asyncio.run(_top(context.params))
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


async def _top(given: Mapping[str, Any]) -> None:
    from specdec.live.session import logged_in
    from specdec.live.show import Display
    from specdec.live.top import Watch

    once = given["once"]
    async with logged_in(given["kube_context"]) as session:
        place = given["namespace"] or session.namespace
        watch = Watch(session.cluster, _where(given, place), given["name"])
        with Display(as_json=given["as_json"], once=once) as display:
            display.first(await watch.look())
            while True:
                await asyncio.sleep(given["interval"])
                rows = await watch.look(patient=not once)
                display.next(rows, watch.missed)
                if once:
                    break
    _end(rows)


def _where(given: Mapping[str, Any], place: str) -> str | None:
    return None if given["all_namespaces"] else place


def _end(rows: "list[Row]") -> None:
    """One sentence for each pod that told nothing, and the highest exit status of them."""
    failed: list[ClientError] = [row.error for row in rows if row.error is not None]
    for error in failed:
        typer.echo(f"specdec: {error}", err=True)
    if failed:
        raise typer.Exit(max(error.exit_status for error in failed))


def _check(given: Mapping[str, Any]) -> None:
    """What becomes part of an address has to be a name."""
    for what, found in (("NAME", given["name"]), ("--namespace", given["namespace"])):
        if found is not None and not _NAME.fullmatch(found):
            raise BadRequestError(f"{what} is {found!r}; write a name as kubectl shows it")
    if given["all_namespaces"] and (given["name"] or given["namespace"]):
        raise BadRequestError("--all-namespaces goes without NAME and --namespace")
