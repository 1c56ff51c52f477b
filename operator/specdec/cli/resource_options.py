"""Options that `specdec plan` and `specdec render` share, and how their errors end."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from specdec.backends.facts import Images
    from specdec.dry_run.plan import Plan

REFUSED = 1
BAD_INPUT = 2
ROLES = ("target", "draft", "heads", "target-engine", "draft-engine")
ROLE_NAMES = ", ".join(ROLES)

Resource = Annotated[
    str, typer.Option("-f", "--file", help="YAML file with one SpeculativeModel; - is stdin.")
]
Version = Annotated[str | None, typer.Option(help="In place of spec.runtime.version.")]
Checkpoints = Annotated[
    list[str] | None,
    typer.Option(
        "--checkpoint",
        metavar="ROLE=DIR",
        help="Local folder of a source (target, draft, heads, target-engine, draft-engine): "
        "looked at as the fetch Job would, so that compatibility and engine keys are real. A "
        "config.json in place of DIR is enough for the memory plan.",
    ),
]


def images() -> "Images":
    """The images that the environment names."""
    from pydantic import ValidationError

    from specdec.api.model import explain
    from specdec.controller.settings import Settings
    from specdec.dry_run.resource import InputError

    try:
        return Settings().images
    except ValidationError as error:
        name, _, problem = explain(error).partition(":")
        raise InputError(f"environment variable SPECDEC_{name.upper()}:{problem}") from error


def checkpoint_folders(given: list[str]) -> dict[str, Path]:
    """Local folders by role."""
    from specdec.dry_run.resource import InputError

    folders = {}
    for one in given:
        role, equals, folder = one.partition("=")
        if not equals or not folder or role not in ROLES:
            raise InputError(f"--checkpoint {one}: give ROLE=DIR, with a role of {ROLE_NAMES}")
        folders[role] = Path(folder)
    return folders


def end(wanted: "Plan") -> None:
    """Exit with 1 and one sentence where the operator would refuse the resource."""
    if wanted.refusal:
        typer.echo(f"specdec: {wanted.refusal}", err=True)
        raise typer.Exit(REFUSED)


@contextmanager
def explained() -> Iterator[None]:
    """Errors as one sentence and an exit status."""
    from specdec.dry_run.resource import InputError
    from specdec.jobs.result import JobError

    try:
        yield
    except InputError as error:
        typer.echo(f"specdec: {error}", err=True)
        raise typer.Exit(BAD_INPUT) from None
    except JobError as error:
        typer.echo(f"specdec: {error.reason}: {error.message}", err=True)
        raise typer.Exit(REFUSED) from None
