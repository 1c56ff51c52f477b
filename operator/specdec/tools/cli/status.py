"""The command `specdec status`; it imports the Kubernetes client only when it runs."""

import asyncio
import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from specdec.tools.cli import options as opt
from specdec.tools.cli.cluster_options import (
    AllNamespaces,
    KubeContext,
    Namespace,
    check_names,
    scope,
)
from specdec.tools.cli.completion import resources


def status(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            help="A SpeculativeModel; default: a table of all.", autocompletion=resources
        ),
    ] = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    kube_context: KubeContext = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per resource.")] = False,
) -> None:
    """Show the stages of a resource, its Jobs and pods, and its measurements.

    SPEED is a multiple of the target alone for one request at a time, with the prompts of the
    verification. A benchmark measures throughput with several clients, so the two may differ.

    Reads SpeculativeModels, Jobs, pods and their logs with the rights of your kubeconfig, and
    writes nothing.

    Exit status: 0 shown, 1 the API server refuses, 2 bad input or no such resource, 3 the API
    server cannot be reached.
    """
    with opt.report_errors():
        check_names(context.params)
        asyncio.run(_status(context.params))


async def _status(options: Mapping[str, Any]) -> None:
    from specdec.tools.inspect import status as reader
    from specdec.tools.inspect.session import logged_in

    name = options["name"]
    async with logged_in(options["kube_context"]) as session:
        namespace = options["namespace"] or session.namespace
        if name is None:
            resources = await reader.read_all(session.cluster, scope(options, namespace))
        else:
            resources = [await reader.read(session.cluster, namespace, name)]
    if options["as_json"]:
        for resource in resources:
            typer.echo(json.dumps(resource))
    else:
        where = "any namespace" if options["all_namespaces"] else f"namespace {namespace}"
        _print(resources, name, where)
    notes = [note for resource in resources for note in resource.get("notes", ())]
    for note in notes:
        typer.echo(f"specdec: {note}", err=True)
    if notes:
        raise typer.Exit(1)


def _print(resources: list[dict[str, Any]], name: str | None, where: str) -> None:
    from datetime import UTC, datetime

    from specdec.tools.inspect import overview, tree
    from specdec.tools.terminal import screen

    if name is not None:
        tree.show(screen(), resources[0], datetime.now(UTC))
    elif resources:
        overview.show_all(screen(), resources, datetime.now(UTC))
    else:
        typer.echo(f"no SpeculativeModel in {where}", err=True)
