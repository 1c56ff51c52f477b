"""`specdec render`. What decides is loaded when the command runs."""

from pathlib import Path
from typing import Annotated

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


def render(
    file: Resource,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder to write; absent or empty.")
    ],
    version: Version = None,
    checkpoint: Checkpoints = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a folder that an earlier render wrote.")
    ] = False,
) -> None:
    """Write every manifest and every file of the model repository, for review.

    Owner references are left out where the resource's uid is not known.

    Exit status: 0 written, 1 the operator would refuse the resource, 2 bad input.
    """
    with explained():
        from specdec.dry_run import rendering
        from specdec.dry_run.plan import make
        from specdec.dry_run.resource import read

        wanted = make(read(file, version), images(), checkpoint_folders(checkpoint or []))
        end(wanted)
        count = rendering.write(wanted, output, force=force)
    typer.echo(f"{count} files in {output}")
