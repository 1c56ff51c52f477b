"""The command `specdec dataset convert`, which converts files of prompts."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from specdec.client.errors import BadRequestError
from specdec.tools.cli import options as opt

# The generate endpoint has no default for max_tokens.
_DEFAULT_TOKENS = 64

app = typer.Typer(
    help="Convert files of prompts.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class DatasetFormat(StrEnum):
    """The formats of input files."""

    AUTO = "auto"
    HUMANEVAL = "humaneval"
    ALPACA = "alpaca"
    SHAREGPT = "sharegpt"
    TURNS = "turns"
    TEXT = "text"
    JSONL = "jsonl"


class Target(StrEnum):
    """The formats of output files."""

    JSONL = "jsonl"
    GENAI_PERF = "genai-perf"
    GENAI_PERF_LINES = "genai-perf-lines"


@app.callback()
def dataset() -> None:
    """Convert files of prompts."""


@app.command(
    epilog="Examples: specdec dataset convert HumanEval.jsonl -o prompts.jsonl; "
    "specdec dataset convert alpaca.json --limit 200 --to genai-perf -o inputs.json; "
    "specdec dataset convert - --from text --max-tokens 32 -o prompts.jsonl"
)
def convert(
    file: Annotated[str, typer.Argument(metavar="FILE", help="File to read; - is stdin.")],
    output: Annotated[
        str, typer.Option("-o", "--output", help="File to write; - is stdout.")
    ] = "-",
    source: Annotated[
        DatasetFormat, typer.Option("--from", help="Format of FILE; auto detects it.")
    ] = DatasetFormat.AUTO,
    target: Annotated[
        Target,
        typer.Option(
            "--to",
            help="jsonl: prompt, max_tokens; genai-perf: the generate endpoint's inputs for "
            "perf_analyzer --input-data; genai-perf-lines: for genai-perf --input-file.",
        ),
    ] = Target.JSONL,
    limit: Annotated[
        int | None, typer.Option(help="Number of prompts to convert, from the first.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="max_tokens of every prompt; default: from the file.")
    ] = None,
) -> None:
    """Convert a data set to JSON lines of prompts, or to the input of a load generator.

    Reads HumanEval and EAGLE's question.jsonl, Alpaca and mini-CNN, ShareGPT, plain text with one
    prompt per line, and its own format. The output file is written completely or not at all.

    Exit status: 0 written, 2 bad input.
    """
    with opt.report_errors():
        for option, value in (("--limit", limit), ("--max-tokens", max_tokens)):
            if value is not None and value < 1:
                raise BadRequestError(f"{option} is {value}; set it to 1 or more, or leave it out")
        _run(file, output, source, target, limit, max_tokens)


def _run(
    file: str,
    output: str,
    source: DatasetFormat,
    target: Target,
    limit: int | None,
    max_tokens: int | None,
) -> None:
    from specdec.client import convert as c
    from specdec.client.dataset import lines

    kind = None if source is DatasetFormat.AUTO else source.value
    name = "stdin" if file == "-" else file
    dataset = c.convert(opt.read(file, "FILE"), name, kind)
    entries = c.limited(dataset.entries, limit, max_tokens)
    if target is Target.GENAI_PERF:
        text = c.genai_perf(entries, max_tokens or _DEFAULT_TOKENS)
    elif target is Target.GENAI_PERF_LINES:
        text = c.genai_perf_lines(entries)
    else:
        text = lines(entries)
    if output == "-":
        typer.echo(text, nl=False)
        output = "stdout"
    else:
        c.write(text, Path(output))
    summary = f"{len(entries)} prompts, read as {dataset.kind}, in {output}"
    if dataset.without:
        summary += f"; {dataset.without} records have no prompt and were left out"
    typer.echo(summary, err=True)
