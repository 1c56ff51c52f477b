"""The command `specdec migrate`; it imports the API only when it runs."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specdec.tools.cli.resource_options import (
    BAD_INPUT,
    exit_if_refused,
    images,
    report_errors,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from specdec.backends.migration import Body, Migration

Resources = Annotated[
    str, typer.Option("-f", "--file", help="YAML file with SpeculativeModels; - is stdin.")
]


def migrate(
    file: Resources,
    to: Annotated[str, typer.Option(help="The backend: PyTorch or VLLM.")] = "PyTorch",
) -> None:
    """Print the resources of another backend that serve the same models.

    They go to stdout with the other objects of the file, and what changed to stderr. Comments of
    the file are lost.

    Exit status: 0 printed, 1 the API server or the operator would refuse a resource, 2 bad input,
    or a field has no equivalent.
    """
    with report_errors():
        from specdec.backends import migrations
        from specdec.tools.dry_run.plan import make
        from specdec.tools.dry_run.rendering import dump
        from specdec.tools.dry_run.resource import InputError, complete, load_all

        if to not in migrations.BACKENDS:
            raise InputError(f"--to {to}: give {' or '.join(migrations.BACKENDS)}")
        migrate_to = partial(migrations.migrate, to)
        objects = load_all(file)
        migrated = [_migrated(body, file, migrate_to) for body in objects]
        if any(result is not None and result.body is None for result in migrated):
            raise typer.Exit(BAD_INPUT)
        printed: list[dict[str, Any]] = []
        for body, result in zip(objects, migrated, strict=True):
            if result is None or result.body is None:
                printed.append(body)
                continue
            exit_if_refused(make(complete(result.body, file), images(), {}))
            for change in result.changes:
                typer.echo(f"# {_name(body)}{change}", err=True)
            printed.append(result.body)
        typer.echo("---\n".join(map(dump, printed)), nl=False)


def _migrated(
    body: "Body", file: str, migrate_to: "Callable[[Body], Migration]"
) -> "Migration | None":
    """Migrate a resource, and report its needs on stderr; None for any other object."""
    from specdec.api.model import KIND
    from specdec.tools.dry_run.resource import complete

    if body.get("kind") != KIND:
        return None
    complete(body, file)
    result = migrate_to(body)
    for need in result.needs:
        typer.echo(f"specdec: {_name(body)}{need}", err=True)
    return result


def _name(body: dict[str, Any]) -> str:
    return f"{body['metadata'].get('name', 'SpeculativeModel')}: "
