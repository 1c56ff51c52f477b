"""The commands `specdec suspend`, `resume` and `rerun`.

They import the Kubernetes client only when they run.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from specdec.tools.cli import options as opt
from specdec.tools.cli.cluster_options import KubeContext, Namespace, ResourceName, check_name


def suspend(
    context: typer.Context,
    name: ResourceName,
    namespace: Namespace = None,
    kube_context: KubeContext = None,
) -> None:
    """Delete the pods of a resource; engines, checkpoints and the claim stay.

    Sets spec.suspend. A sync of Argo CD or Flux may reset it if Git has the field.

    Exit status: 0 done, 1 the API server refuses, 2 bad input or no such resource, 3 the API
    server cannot be reached.
    """
    from specdec.tools.inspect.actions import suspension

    _change(
        context.params,
        suspension(True),
        "is suspended: the operator deletes its pods, and keeps engines, checkpoints and claim",
        "is suspended already",
    )


def resume(
    context: typer.Context,
    name: ResourceName,
    namespace: Namespace = None,
    kube_context: KubeContext = None,
) -> None:
    """Serve a suspended resource again.

    Resets spec.suspend. The resource has the replicas that it had before.

    Exit status: 0 done, 1 the API server refuses, 2 bad input or no such resource, 3 the API
    server cannot be reached.
    """
    from specdec.tools.inspect.actions import suspension

    _change(
        context.params,
        suspension(False),
        "is resumed: specdec status shows its progress",
        "is not suspended",
    )


def rerun(
    context: typer.Context,
    name: ResourceName,
    benchmark: Annotated[
        bool, typer.Option("--benchmark", help="Repeat the benchmark, not the verification.")
    ] = False,
    namespace: Namespace = None,
    kube_context: KubeContext = None,
) -> None:
    """Measure a resource again: its verification, or its benchmark.

    Increments spec.verification.run or spec.benchmark.run. The old result stays in the status
    until the new one replaces it.

    Exit status: 0 done, 1 the API server refuses, 2 bad input or no such resource, 3 the API
    server cannot be reached.
    """
    from specdec.tools.inspect.actions import another_run

    section = "benchmark" if benchmark else "verification"
    done = f"runs its {section} again: specdec status shows the result"
    _change(context.params, another_run(section), done)


def _change(
    params: Mapping[str, Any], operations: Callable[..., Any], done: str, unchanged: str = ""
) -> None:
    with opt.report_errors():
        check_name("NAME", params["name"])
        check_name("--namespace", params["namespace"])
        namespace, is_changed = asyncio.run(_changed(params, operations))
        typer.echo(f"{namespace}/{params['name']} {done if is_changed else unchanged}")


async def _changed(params: Mapping[str, Any], operations: Callable[..., Any]) -> tuple[str, bool]:
    from specdec.tools.inspect.actions import change
    from specdec.tools.inspect.session import logged_in

    async with logged_in(params["kube_context"]) as session:
        namespace = params["namespace"] or session.namespace
        return namespace, await change(session.cluster, namespace, params["name"], operations)
