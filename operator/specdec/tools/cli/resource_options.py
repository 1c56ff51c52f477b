"""Options that `specdec plan` and `specdec render` share, and their exit statuses."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specdec.tools.cli.completion import matching

if TYPE_CHECKING:
    from specdec.backends.facts import Images
    from specdec.tools.dry_run.plan import ResourcePlan

REFUSED = 1
BAD_INPUT = 2
ROLES = ("target", "draft", "heads", "target-engine", "draft-engine")
ROLE_NAMES = ", ".join(ROLES)

Resource = Annotated[
    str, typer.Option("-f", "--file", help="YAML file with one SpeculativeModel; - is stdin.")
]
Version = Annotated[str | None, typer.Option(help="Replaces spec.runtime.version.")]
Checkpoints = Annotated[
    list[str] | None,
    typer.Option(
        "--checkpoint",
        metavar="ROLE=DIR",
        help="Local folder of a source (target, draft, heads, target-engine, draft-engine): "
        "inspected as by the fetch Job, so that compatibility and engine keys are real. A "
        "config.json in place of DIR is enough for the memory plan.",
        autocompletion=lambda incomplete: matching((f"{role}=" for role in ROLES), incomplete),
    ),
]


def images() -> "Images":
    """The images from the environment variables of the operator."""
    from pydantic import ValidationError

    from specdec.api.model import explain
    from specdec.controller.settings import Settings
    from specdec.tools.dry_run.resource import InputError

    try:
        return Settings().images
    except ValidationError as error:
        name, _, problem = explain(error).partition(":")
        raise InputError(f"environment variable SPECDEC_{name.upper()}:{problem}") from error


def checkpoint_folders(given: list[str]) -> dict[str, Path]:
    """Parse the values of --checkpoint; returns local folders by role."""
    from specdec.tools.dry_run.resource import InputError

    folders = {}
    for value in given:
        role, equals, folder = value.partition("=")
        if not equals or not folder or role not in ROLES:
            raise InputError(f"--checkpoint {value}: give ROLE=DIR, with a role of {ROLE_NAMES}")
        folders[role] = Path(folder)
    return folders


def exit_if_refused(plan: "ResourcePlan") -> None:
    """Exit with 1 and one sentence if the operator would refuse the resource."""
    if plan.refusal:
        typer.echo(f"specdec: {plan.refusal}", err=True)
        raise typer.Exit(REFUSED)


@contextmanager
def report_errors() -> Iterator[None]:
    """End the command with one sentence and an exit status.

    If the API server would refuse the resource, there is one line for each problem.
    """
    from specdec.jobs.result import JobError
    from specdec.tools.dry_run.resource import InputError, RefusedError

    try:
        yield
    except RefusedError as error:
        for line in str(error).splitlines():
            typer.echo(f"specdec: {line}", err=True)
        raise typer.Exit(REFUSED) from None
    except InputError as error:
        typer.echo(f"specdec: {error}", err=True)
        raise typer.Exit(BAD_INPUT) from None
    except JobError as error:
        typer.echo(f"specdec: {error.reason}: {error.message}", err=True)
        raise typer.Exit(REFUSED) from None
