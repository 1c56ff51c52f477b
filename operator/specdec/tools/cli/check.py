"""The command `specdec check`; it imports the Kubernetes client only when it runs."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import typer

from specdec.tools.cli import options as opt
from specdec.tools.cli.cluster_options import KubeContext, Namespace, OperatorNamespace, check_name

_STYLES = {"ok": "green", "warning": "yellow", "problem": "red"}


def check(
    context: typer.Context,
    namespace: Namespace = None,
    kube_context: KubeContext = None,
    operator_namespace: OperatorNamespace = "specdec-system",
    as_json: opt.AsObject = False,
) -> None:
    """Check whether a cluster can run the operator and its resources.

    Checks the API server, the CRD, the operator and its images, your rights in the namespace, GPUs
    and storage classes. Writes nothing. What you may not read is a warning.

    Exit status: 0 no problem, 1 a problem, 2 bad input or no kubeconfig, 3 the API server cannot
    be reached.
    """
    with opt.report_errors():
        check_name("--namespace", namespace)
        check_name("--operator-namespace", operator_namespace)
        result = asyncio.run(_check(context.params))
    if as_json:
        typer.echo(json.dumps(result))
    else:
        _print(result["checks"])
    if any(item["result"] == "problem" for item in result["checks"]):
        raise typer.Exit(1)


async def _check(options: Mapping[str, Any]) -> dict[str, Any]:
    from specdec.tools.dry_run.admission.definition import is_carried
    from specdec.tools.inspect.checks import reading
    from specdec.tools.inspect.session import logged_in

    async with logged_in(options["kube_context"]) as session:
        namespace = options["namespace"] or session.namespace
        place = options["operator_namespace"]
        return await reading.check(session.cluster, namespace, place, is_carried)


def _print(checks: list[dict[str, Any]]) -> None:
    from rich.text import Text

    from specdec.tools.terminal import grid, row, screen

    table = grid("Result", "Check", "Message", whole={"Result", "Check"}, show_header=False)
    for item in checks:
        fix = f"; to resolve: {item['fix']}" if item["fix"] else ""
        verdict = Text(item["result"], _STYLES[item["result"]])
        row(table, verdict, item["name"], f"{item['message']}{fix}")
    screen().print(table)
