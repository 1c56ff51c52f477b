"""Options that several commands share, and how they become a connection, words and prompts."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from specdec.api.text import plain
from specdec.client.connection import Connection, headers
from specdec.client.errors import BadRequestError, ClientError


class Protocol(StrEnum):
    """What is spoken at an address."""

    GRPC = "grpc"
    HTTP = "http"


Url = Annotated[str | None, typer.Option(help="host:port; default localhost:8001, 8000 for http.")]
Prompts = Annotated[
    list[str] | None, typer.Option("--prompt", help="Text to continue; repeat for several.")
]
PromptFile = Annotated[
    str | None, typer.Option(help="File with one text to continue; - is stdin.")
]
PromptsFile = Annotated[str | None, typer.Option(help="JSON lines with a key prompt; - is stdin.")]
MaxTokens = Annotated[int, typer.Option(help="New tokens at most.")]
Temperature = Annotated[float | None, typer.Option(help="Sampling temperature.")]
TopK = Annotated[int | None, typer.Option(help="Sample among so many tokens; 0: all.")]
TopP = Annotated[float | None, typer.Option(help="Sample within this probability.")]
Seed = Annotated[int | None, typer.Option(help="Seed of the sampler.")]
MinTokens = Annotated[int | None, typer.Option(help="The answer does not end before.")]
RepetitionPenalty = Annotated[float | None, typer.Option(help="Above 1 discourages repeats.")]
PresencePenalty = Annotated[float | None, typer.Option(help="Taken off tokens seen before.")]
FrequencyPenalty = Annotated[float | None, typer.Option(help="Taken off for every occurrence.")]
LengthPenalty = Annotated[float | None, typer.Option(help="Of beam search.")]
EndId = Annotated[int | None, typer.Option(help="Token that ends; default: the tokenizer's.")]
PadId = Annotated[int | None, typer.Option(help="Token that pads; default: the tokenizer's.")]
StopWords = Annotated[
    list[str] | None, typer.Option("--stop-word", help="The answer ends with it; repeatable.")
]
BadWords = Annotated[
    list[str] | None, typer.Option("--bad-word", help="Never generated; repeatable.")
]
Bias = Annotated[
    list[str] | None,
    typer.Option(metavar="WORD=WEIGHT", help="Added to the word's logits; repeatable."),
]
Timeout = Annotated[float, typer.Option(help="Seconds an answer may take.")]
Tls = Annotated[bool, typer.Option("--tls", help="Encrypt the connection.")]
Root = Annotated[str | None, typer.Option("--ca", help="PEM file of who signed the server.")]
Key = Annotated[str | None, typer.Option("--key", help="PEM file of the client's key.")]
Chain = Annotated[str | None, typer.Option("--cert", help="PEM file of the client's chain.")]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME: VALUE", help="Sent with every request; repeatable."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]
# The two joiners belong to the spelling of Persian, of Indic scripts and of many emoji.
_KEPT = "\n\t\u200c\u200d"


@contextmanager
def explained() -> Iterator[None]:
    """Ends the command with one sentence and the exit status of a client's error."""
    try:
        yield
    except ClientError as error:
        typer.echo(f"specdec: {error}", err=True)
        raise typer.Exit(error.exit_status) from None


def say(text: str, *, nl: bool = True) -> None:
    """Print a model's text: as it is into a file, and on a terminal without commands to it."""
    typer.echo(plain(text, _KEPT) if sys.stdout.isatty() else text, nl=nl)


def address(given: Mapping[str, Any]) -> str:
    """`--url`, or where a server is forwarded to for `--protocol`."""
    standard = "localhost:8000" if given["protocol"] is Protocol.HTTP else "localhost:8001"
    return given["url"] or standard


def connection(given: Mapping[str, Any], url: str) -> Connection:
    """The connection that a command's options describe."""
    return Connection(
        url,
        timeout=given["timeout"],
        tls=given["tls"],
        root_certificates=given["root"],
        private_key=given["key"],
        certificate_chain=given["chain"],
        headers=headers(given["header"] or ()),
    )


def known(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are fields of a dataclass, and the three word lists of `Sampling`."""
    names = {field.name for field in fields(kind)}
    chosen = {name: value for name, value in given.items() if name in names}
    weighted = [_weight(entry) for entry in given["bias"] or ()]
    return {
        **chosen,
        "stop_words": tuple(given["stop_words"] or ()),
        "bad_words": tuple(given["bad_words"] or ()),
        "bias_words": tuple(word for word, _ in weighted),
        "bias_weights": tuple(weight for _, weight in weighted),
    }


def _weight(entry: str) -> tuple[str, float]:
    word, _, weight = entry.rpartition("=")
    try:
        return word, float(weight)
    except ValueError as error:
        raise BadRequestError(
            f"--bias is {entry!r}; write WORD=WEIGHT, for example ' the=-2.5'"
        ) from error


def prompts(given: Mapping[str, Any]) -> list[str]:
    """The texts to continue, from exactly one of the options that carry them.

    Raises:
        BadRequestError: none or several of them, a file that cannot be read, a line that is no
            JSON object with a text under `prompt`.
    """
    file, lines = given["prompt_file"], given["prompts_file"]
    if sum(bool(one) for one in (given["prompt"], file, lines)) != 1:
        raise BadRequestError("give either --prompt, --prompt-file or --prompts-file")
    if file:
        return [read(file, "--prompt-file")]
    if not lines:
        return list(given["prompt"])
    from specdec.client import dataset

    entries = dataset.parse(read(lines, "--prompts-file"), f"--prompts-file {lines}")
    return [entry.prompt for entry in entries]


def read(file: str, option: str) -> str:
    """A text file, or stdin for `-`."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequestError(
            f"{option} {file} cannot be read ({error}); name a text file"
        ) from error
