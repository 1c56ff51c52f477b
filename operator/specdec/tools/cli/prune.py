"""The command `specdec prune`; it imports the Kubernetes client only when it runs."""

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from specdec.client.errors import BadRequestError
from specdec.tools.cli import options as opt
from specdec.tools.cli.cluster_options import KubeContext, Namespace, OperatorNamespace, check_name

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def prune(
    context: typer.Context,
    claim: Annotated[str, typer.Argument(help="A claim, such as NAME-models of a resource NAME.")],
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete what is unused; default: only list it.")
    ] = False,
    older_than: Annotated[
        str, typer.Option(help="Delete only what is older: a number with s, m, h or d.")
    ] = "1d",
    image: Annotated[
        str, typer.Option(help="The operator's image; default: that of its Deployment.")
    ] = "",
    namespace: Namespace = None,
    kube_context: KubeContext = None,
    operator_namespace: OperatorNamespace = "specdec-system",
    as_json: opt.AsObject = False,
) -> None:
    """List the checkpoints, engines and repositories of a claim that no resource uses.

    A Job reads the volume, and is deleted afterwards. With --delete it deletes what is unused. If
    a resource needs something of it later, the operator downloads or builds it again.

    Exit status: 0 done, 1 the API server refuses, or a Job uses the claim, 2 bad input or no such
    claim, 3 the API server cannot be reached.
    """
    with opt.report_errors():
        check_name("CLAIM", claim)
        check_name("--namespace", namespace)
        check_name("--operator-namespace", operator_namespace)
        result = asyncio.run(_prune(context.params, seconds(older_than)))
    if as_json:
        typer.echo(json.dumps(result))
    else:
        _print(result, delete=delete)


def seconds(text: str) -> float:
    """Parse a duration such as 12h; raises BadRequestError."""
    match = re.fullmatch(r"(\d{1,6})([smhd])", text)
    if match is None:
        raise BadRequestError(f"--older-than is {text!r}; write a number with s, m, h or d: 12h")
    return float(match[1]) * _SECONDS[match[2]]


async def _prune(options: Mapping[str, Any], older_than: float) -> dict[str, Any]:
    from specdec.tools.inspect.prune import PruneRequest, prune
    from specdec.tools.inspect.session import logged_in
    from specdec.tools.terminal import waiting

    async with logged_in(options["kube_context"]) as session:
        request = PruneRequest(
            options["namespace"] or session.namespace,
            options["claim"],
            older_than,
            options["delete"],
            options["image"],
            options["operator_namespace"],
        )
        with waiting() as report:
            return await prune(session.cluster, request, report=report)


def _print(result: Mapping[str, Any], *, delete: bool) -> None:
    from rich.filesize import decimal
    from rich.text import Text

    from specdec.tools.terminal import ago, grid, plain, row, screen

    unused = [item for item in result["items"] if not item["used"]]
    table = grid("Directory", "Size", "Age", "", whole={"Directory"})
    for item in unused:
        place = f"{item['kind']}/{item['name'][:16]}"
        done = "deleted" if item["deleted"] else "kept: too new" if delete else "unused"
        row(table, place, decimal(item["bytes"]), ago(item["age"]), done)
    if unused:
        screen().print(table)
    screen().print(Text(plain(_verdict(result, unused, delete=delete))))


def _verdict(result: Mapping[str, Any], unused: list[dict[str, Any]], *, delete: bool) -> str:
    from rich.filesize import decimal

    users = ", ".join(result["resources"]) or "no resource"
    size = decimal(sum(item["bytes"] for item in unused))
    of = f"{len(unused)} of {len(result['items'])} directories on {result['claim']}"
    if not delete:
        end = "; --delete deletes them" if unused else ""
        return f"{of} are unused ({size}); used by {users}{end}"
    deleted = [item for item in unused if item["deleted"]]
    freed = decimal(sum(item["bytes"] for item in deleted))
    return f"{of} were unused ({size}); deleted {len(deleted)} ({freed}); used by {users}"
