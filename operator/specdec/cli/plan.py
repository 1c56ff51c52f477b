"""`specdec plan`. What decides is loaded when the command runs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specdec.cli.resource_options import (
    Checkpoints,
    Resource,
    Version,
    checkpoint_folders,
    end,
    explained,
    images,
)

if TYPE_CHECKING:
    from specdec.dry_run.plan import Plan
    from specdec.dry_run.resource import Body


def plan(
    file: Resource,
    version: Version = None,
    checkpoint: Checkpoints = None,
    diff: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The resource as it is now: say what -f would rebuild, republish or restart.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Say what the operator would do with a resource, without a cluster.

    Runs the operator's own decisions as if every Job and pod did well. What only a cluster or a
    fetch tells is marked. SPECDEC_OPERATOR_IMAGE and SPECDEC_REFERENCE_IMAGE name the images, as
    in the operator's Deployment.

    Exit status: 0 it would serve, 1 the operator would refuse it, 2 bad input.
    """
    with explained():
        from specdec.dry_run import difference, tables
        from specdec.dry_run.plan import make, summary
        from specdec.dry_run.resource import read

        body, folders = read(file, version), checkpoint_folders(checkpoint or [])
        wanted = make(body, images(), folders)
        told = summary(wanted)
        if diff is not None:
            compared = difference.compare(_before(read(diff), body, folders), wanted)
            if as_json:
                told = {**told, "diff": compared}
            elif not wanted.refusal:
                for line in difference.sentences(compared):
                    typer.echo(line)
        if as_json:
            typer.echo(json.dumps(told, indent=2))
        elif diff is None and not wanted.refusal:
            tables.show(told)
        end(wanted)


def _before(body: "Body", after: "Body", folders: dict[str, Path]) -> "Plan":
    """The plan to compare with; a given checkpoint is meant for it too where sources agree."""
    from specdec.api.model import SpeculativeModel
    from specdec.dry_run.plan import make

    old, new = (SpeculativeModel.parse(one).sources for one in (body, after))
    same = {role for role in old.keys() & new.keys() if old[role] == new[role]}
    return make(body, images(), {r: p for r, p in folders.items() if r in same})
