"""`specdec plan` and `specdec render`. What decides is loaded when the command runs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from specdec.offline.plan import Plan
    from specdec.offline.resource import Body
    from specdec.stages.stage import Images

_REFUSED = 1
_BAD_INPUT = 2
_ROLES = ("target", "draft", "heads", "target-engine", "draft-engine")
_SAID = ", ".join(_ROLES)

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
    with _explained():
        from specdec.offline import difference, tables
        from specdec.offline.plan import make, summary
        from specdec.offline.resource import read

        body, folders = read(file, version), _folders(checkpoint or [])
        wanted = make(body, _images(), folders)
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
        _end(wanted)


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
    with _explained():
        from specdec.offline import rendering
        from specdec.offline.plan import make
        from specdec.offline.resource import read

        wanted = make(read(file, version), _images(), _folders(checkpoint or []))
        _end(wanted)
        count = rendering.write(wanted, output, force=force)
    typer.echo(f"{count} files in {output}")


def _before(body: "Body", after: "Body", folders: dict[str, Path]) -> "Plan":
    """The plan to compare with; a given checkpoint is meant for it too where sources agree."""
    from specdec.api.model import SpeculativeModel
    from specdec.offline.plan import make

    old, new = (SpeculativeModel.parse(one).sources for one in (body, after))
    same = {role for role in old.keys() & new.keys() if old[role] == new[role]}
    return make(body, _images(), {r: p for r, p in folders.items() if r in same})


def _images() -> "Images":
    from pydantic import ValidationError

    from specdec.api.model import explain
    from specdec.offline.resource import InputError
    from specdec.settings import Settings

    try:
        return Settings().images
    except ValidationError as error:
        name, _, problem = explain(error).partition(":")
        raise InputError(f"environment variable SPECDEC_{name.upper()}:{problem}") from error


def _folders(given: list[str]) -> dict[str, Path]:
    from specdec.offline.resource import InputError

    folders = {}
    for one in given:
        role, equals, folder = one.partition("=")
        if not equals or not folder or role not in _ROLES:
            raise InputError(f"--checkpoint {one}: give ROLE=DIR, with a role of {_SAID}")
        folders[role] = Path(folder)
    return folders


def _end(wanted: "Plan") -> None:
    if wanted.refusal:
        typer.echo(f"specdec: {wanted.refusal}", err=True)
        raise typer.Exit(_REFUSED)


@contextmanager
def _explained() -> Iterator[None]:
    """Errors as one sentence and an exit status."""
    from specdec.jobs.result import JobError
    from specdec.offline.resource import InputError

    try:
        yield
    except InputError as error:
        typer.echo(f"specdec: {error}", err=True)
        raise typer.Exit(_BAD_INPUT) from None
    except JobError as error:
        typer.echo(f"specdec: {error.reason}: {error.message}", err=True)
        raise typer.Exit(_REFUSED) from None
