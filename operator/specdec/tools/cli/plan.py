"""The command `specdec plan`; it imports the pipeline only when it runs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specdec.tools.cli.options import AsObject
from specdec.tools.cli.resource_options import (
    Checkpoints,
    Resource,
    Version,
    checkpoint_folders,
    exit_if_refused,
    images,
    report_errors,
)

if TYPE_CHECKING:
    from specdec.tools.dry_run.plan import ResourcePlan
    from specdec.tools.dry_run.resource import Body


def plan(
    file: Resource,
    version: Version = None,
    checkpoint: Checkpoints = None,
    diff: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The current resource: show what -f would rebuild, republish or restart.",
        ),
    ] = None,
    as_json: AsObject = False,
) -> None:
    """Show what the operator would do with a resource, without a cluster.

    Runs the operator's own decisions as if every Job and pod succeeded. A resource without a
    namespace gets that of the kubeconfig's context. Values that only a cluster
    or a fetch Job knows are marked. SPECDEC_OPERATOR_IMAGE and SPECDEC_REFERENCE_IMAGE set the
    images, as in the operator's Deployment.

    Exit status: 0 it would serve, 1 the API server or the operator would refuse it, 2 bad input.
    """
    with report_errors():
        from specdec.tools.cli.kubeconfig import namespace
        from specdec.tools.dry_run import build_commands, difference, tables
        from specdec.tools.dry_run.plan import make
        from specdec.tools.dry_run.resource import read
        from specdec.tools.dry_run.summary import summary

        place = namespace()
        body, folders = read(file, version, diff, place), checkpoint_folders(checkpoint or [])
        planned = make(body, images(), folders)
        steps = {} if planned.refusal else build_commands.of(planned, folders)
        result = summary(planned, steps)
        if diff is not None:
            compared = difference.compare(
                _plan_before(read(diff, namespace=place), body, folders), planned
            )
            if as_json:
                result = {**result, "diff": compared}
            elif not planned.refusal:
                for line in difference.sentences(compared):
                    typer.echo(line)
        if as_json:
            typer.echo(json.dumps(result, indent=2))
        elif diff is None and not planned.refusal:
            tables.show(result)
        exit_if_refused(planned)


def _plan_before(body: "Body", after: "Body", folders: dict[str, Path]) -> "ResourcePlan":
    """The plan of the current resource, with the given checkpoints of unchanged sources."""
    from specdec.api.model import SpeculativeModel
    from specdec.tools.dry_run.plan import make

    old, new = (SpeculativeModel.parse(item).sources for item in (body, after))
    same = {role for role in old.keys() & new.keys() if old[role] == new[role]}
    return make(body, images(), {r: p for r, p in folders.items() if r in same})
