"""The command `specdec catalog`; it imports the catalogue only when it runs."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from specdec.tools.cli.options import AsObject

if TYPE_CHECKING:
    from specdec.api.catalog import Pair


def catalog(
    target: Annotated[
        str, typer.Argument(help="A repository of the hub, or a part of its name.")
    ] = "",
    as_json: AsObject = False,
) -> None:
    """List published drafts and heads by target.

    Each row names the source that pairs both, and the day of its state that was read. Nothing is
    downloaded: the fetch Job checks whether the files fit.

    Exit status: 0 listed, 1 no pair is known.
    """
    from specdec.api import catalog as pairs

    listed = pairs.of(target) or pairs.like(target)
    if as_json:
        typer.echo(json.dumps({"pairs": [pair.shown() for pair in listed]}))
    elif listed:
        _print(listed)
    else:
        typer.echo(
            f"no pair is known for {target}: `specdec init` writes a manifest without one",
            err=True,
        )
    if not listed:
        raise typer.Exit(1)


def _print(listed: "Sequence[Pair]") -> None:
    from specdec.tools.terminal import grid, row, screen

    table = grid("Target", "Method", "Draft or heads", "Backends", "Tokens", "Licence", "Result")
    for pair in listed:
        draft, tokens = pair.repository or "in the target", pair.tokens or ""
        more = (pair.licence or "", pair.result or "")
        row(table, pair.target, pair.method, draft, ", ".join(pair.backends), tokens, *more)
    screen().print(table)
