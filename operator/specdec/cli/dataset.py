"""`specdec dataset`: files of prompts."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from specdec.cli import options as a
from specdec.client.errors import BadRequestError

# The generate endpoint has no default of its own.
_DEFAULT_TOKENS = 64

app = typer.Typer(
    help="Files of prompts.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Source(StrEnum):
    """What a file of prompts may be."""

    AUTO = "auto"
    HUMANEVAL = "humaneval"
    ALPACA = "alpaca"
    SHAREGPT = "sharegpt"
    TURNS = "turns"
    TEXT = "text"
    JSONL = "jsonl"


class Wanted(StrEnum):
    """What is written."""

    JSONL = "jsonl"
    GENAI_PERF = "genai-perf"
    GENAI_PERF_LINES = "genai-perf-lines"


@app.callback()
def dataset() -> None:
    """Files of prompts."""


@app.command(
    epilog="Examples: specdec dataset convert HumanEval.jsonl -o prompts.jsonl; "
    "specdec dataset convert alpaca.json --limit 200 --to genai-perf -o inputs.json; "
    "specdec dataset convert - --from text --max-tokens 32 -o prompts.jsonl"
)
def convert(
    file: Annotated[str, typer.Argument(metavar="FILE", help="What to read; - is stdin.")],
    output: Annotated[
        str, typer.Option("-o", "--output", help="What to write; - is stdout.")
    ] = "-",
    source: Annotated[
        Source, typer.Option("--from", help="Format of FILE; auto finds out.")
    ] = Source.AUTO,
    wanted: Annotated[
        Wanted,
        typer.Option(
            "--to",
            help="jsonl: prompt, max_tokens; genai-perf: the generate endpoint's inputs for "
            "perf_analyzer --input-data; genai-perf-lines: for genai-perf --input-file.",
        ),
    ] = Wanted.JSONL,
    limit: Annotated[int | None, typer.Option(help="The first so many prompts.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="In place of what the file says or its answers suggest.")
    ] = None,
) -> None:
    """Turn a data set into JSON lines of prompts, or into a load generator's input.

    Reads HumanEval and EAGLE's question.jsonl, Alpaca and mini-CNN, ShareGPT, plain text with one
    prompt a line, and our own. The output is written whole or not at all.

    Exit status: 0 written, 2 bad input.
    """
    with a.explained():
        for option, value in (("--limit", limit), ("--max-tokens", max_tokens)):
            if value is not None and value < 1:
                raise BadRequestError(f"{option} is {value}; set it to 1 or more, or leave it out")
        _run(file, output, source, wanted, limit, max_tokens)


def _run(
    file: str,
    output: str,
    source: Source,
    wanted: Wanted,
    limit: int | None,
    max_tokens: int | None,
) -> None:
    from specdec.client import convert as c
    from specdec.client.dataset import lines

    kind = None if source is Source.AUTO else source.value
    name = "stdin" if file == "-" else file
    found = c.convert(a.read(file, "FILE"), name, kind)
    entries = c.limited(found.entries, limit, max_tokens)
    if wanted is Wanted.GENAI_PERF:
        text = c.genai_perf(entries, max_tokens or _DEFAULT_TOKENS)
    elif wanted is Wanted.GENAI_PERF_LINES:
        text = c.genai_perf_lines(entries)
    else:
        text = lines(entries)
    if output == "-":
        typer.echo(text, nl=False)
        output = "stdout"
    else:
        c.write(text, Path(output))
    told = f"{len(entries)} prompts, read as {found.kind}, in {output}"
    if found.without:
        told += f"; {found.without} records have no prompt and were left out"
    typer.echo(told, err=True)
