"""The command `specdec logs`; it imports the Kubernetes client only when it runs."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from specdec.client.errors import BadRequestError
from specdec.tools.cli import options as opt
from specdec.tools.cli.cluster_options import KubeContext, Namespace, ResourceName, check_name


def logs(
    context: typer.Context,
    name: ResourceName,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Wait for more lines and new pods.")
    ] = False,
    component: Annotated[
        list[str] | None,
        typer.Option(help="Only pods of this component, such as server or engine; repeatable."),
    ] = None,
    tail: Annotated[
        int | None, typer.Option(metavar="LINES", help="The last lines of each container.")
    ] = None,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", help="Show the time of each line.")
    ] = False,
    namespace: Namespace = None,
    kube_context: KubeContext = None,
) -> None:
    """Show the logs of all Jobs and servers of a resource.

    Each line begins with the name of its pod, and of its container if the pod has several. Reads
    Jobs, pods and their logs with the rights of your kubeconfig. Ctrl-C ends --follow.

    Exit status: 0 shown, 1 the API server refuses, 2 bad input or no such resource, 3 the API
    server cannot be reached.
    """
    with opt.report_errors():
        check_name("NAME", name)
        check_name("--namespace", namespace)
        if tail is not None and tail < 0:
            raise BadRequestError(f"--tail is {tail}; set it to 0 or more lines")
        try:
            complete = asyncio.run(_logs(context.params))
        except KeyboardInterrupt:
            raise typer.Exit(0) from None
    if not complete:
        raise typer.Exit(1)


async def _logs(options: Mapping[str, Any]) -> bool:
    from specdec.tools.inspect.logs import Logs, Selection
    from specdec.tools.inspect.session import logged_in
    from specdec.tools.terminal import plain

    def note(text: str) -> None:
        typer.echo(f"specdec: {plain(text)}", err=True)

    selection = Selection(options["component"] or (), options["tail"], options["timestamps"])
    async with logged_in(options["kube_context"]) as session:
        resource = (options["namespace"] or session.namespace, options["name"])
        logs = Logs(session.cluster, resource, selection, opt.print_text, note)
        return await (logs.follow() if options["follow"] else logs.read())
