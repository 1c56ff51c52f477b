"""`specdec status`. What speaks to a cluster is loaded when the command runs."""

import asyncio
import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from specdec.cli import options as a
from specdec.cli.cluster_options import Everywhere, KubeContext, Namespace, checked, scope


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
        checked(context.params)
        asyncio.run(_status(context.params))


async def _status(given: Mapping[str, Any]) -> None:
    from specdec.inspect import status as live
    from specdec.inspect.session import logged_in

    name = given["name"]
    async with logged_in(given["kube_context"]) as session:
        place = given["namespace"] or session.namespace
        if name is None:
            found = await live.read_all(session.cluster, scope(given, place))
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

    from specdec.inspect import tree
    from specdec.terminal import screen

    if name is not None:
        tree.show(screen(), found[0], datetime.now(UTC))
    elif found:
        tree.show_all(screen(), found, datetime.now(UTC))
    else:
        typer.echo(f"no SpeculativeModel in {where}", err=True)
