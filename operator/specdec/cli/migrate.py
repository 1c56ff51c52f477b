"""The command `specdec migrate`; it imports the API only when it runs."""

from typing import Annotated

import typer

from specdec.cli.resource_options import (
    BAD_INPUT,
    Resource,
    exit_if_refused,
    images,
    report_errors,
)


def migrate(
    file: Resource,
    to: Annotated[str, typer.Option(help="The backend: PyTorch.")] = "PyTorch",
) -> None:
    """Print the resource of another backend that serves the same models.

    The resource goes to stdout, what changed to stderr. Comments of the file are lost.

    Exit status: 0 printed, 1 the operator would refuse the result, 2 bad input, or a field has no
    equivalent.
    """
    with report_errors():
        import yaml

        from specdec.backends.pytorch import migration
        from specdec.dry_run.plan import make
        from specdec.dry_run.resource import InputError, complete, load

        if to != migration.TO:
            raise InputError(f"--to {to}: give {migration.TO}")
        body = load(file)
        complete(body, file)
        result = migration.migrate(body)
        for need in result.needs:
            typer.echo(f"specdec: {need}", err=True)
        if result.body is None:
            raise typer.Exit(BAD_INPUT)
        exit_if_refused(make(complete(result.body, file), images(), {}))
        for change in result.changes:
            typer.echo(f"# {change}", err=True)
        typer.echo(yaml.safe_dump(result.body, sort_keys=False), nl=False)
