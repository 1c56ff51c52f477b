"""The command `specdec render`; it imports the pipeline only when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from specdec.tools.cli.resource_options import (
    Checkpoints,
    Resource,
    Version,
    checkpoint_folders,
    exit_if_refused,
    images,
    report_errors,
)


def render(
    file: Resource,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder to write; missing or empty.")
    ],
    version: Version = None,
    checkpoint: Checkpoints = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the result of an earlier render.")
    ] = False,
) -> None:
    """Write every manifest and every file of the model repository for review.

    Owner references are left out if the resource has no uid.

    Exit status: 0 written, 1 the API server or the operator would refuse the resource,
    2 bad input.
    """
    with report_errors():
        from specdec.tools.cli.kubeconfig import namespace
        from specdec.tools.dry_run import rendering
        from specdec.tools.dry_run.plan import make
        from specdec.tools.dry_run.resource import read

        body = read(file, version, namespace=namespace())
        plan = make(body, images(), checkpoint_folders(checkpoint or []))
        exit_if_refused(plan)
        count = rendering.write(plan, output, force=force)
    typer.echo(f"{count} files in {output}")
