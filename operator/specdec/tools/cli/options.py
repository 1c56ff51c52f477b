"""Options that several commands share, and functions that turn them into client objects.

Commands annotate their parameters with these types, and pass `context.params` to the functions.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from specdec.api.text import plain
from specdec.client.connection import Connection, headers, of_url
from specdec.client.errors import BadRequestError, ClientError
from specdec.tools.cli.completion import addresses
from specdec.triton.model_names import BLS


class Protocol(StrEnum):
    """The protocols of a server."""

    GRPC = "grpc"
    HTTP = "http"


Model = Annotated[
    str | None,
    typer.Option(help=f"Default: {BLS}, or the only model of an OpenAI endpoint."),
]
Url = Annotated[
    str | None,
    typer.Option(
        help="host:port of Triton (default localhost:8001, 8000 for http), the base URL of an "
        "OpenAI endpoint, or specm/NAME or specm/NAME/v1 of a cluster.",
        autocompletion=addresses,
    ),
]
Prompts = Annotated[
    list[str] | None, typer.Option("--prompt", help="Text to continue; repeat for several.")
]
PromptFile = Annotated[
    str | None, typer.Option(help="File with one text to continue; - is stdin.")
]
PromptsFile = Annotated[str | None, typer.Option(help="JSON lines with a key prompt; - is stdin.")]
MaxTokens = Annotated[int, typer.Option(help="Maximum number of output tokens.")]
Temperature = Annotated[float | None, typer.Option(help="Sampling temperature.")]
TopK = Annotated[int | None, typer.Option(help="Number of tokens to sample from; 0: all.")]
TopP = Annotated[float | None, typer.Option(help="Cumulative probability to sample from.")]
Seed = Annotated[int | None, typer.Option(help="Seed of the sampler.")]
MinTokens = Annotated[int | None, typer.Option(help="Minimum number of output tokens.")]
RepetitionPenalty = Annotated[
    float | None, typer.Option(help="Values above 1 discourage repetition.")
]
PresencePenalty = Annotated[
    float | None, typer.Option(help="Subtracted for tokens that occurred.")
]
FrequencyPenalty = Annotated[float | None, typer.Option(help="Subtracted per occurrence.")]
LengthPenalty = Annotated[float | None, typer.Option(help="Length penalty of beam search.")]
EndId = Annotated[int | None, typer.Option(help="End token; default: the tokenizer's.")]
PadId = Annotated[int | None, typer.Option(help="Padding token; default: the tokenizer's.")]
StopWords = Annotated[
    list[str] | None, typer.Option("--stop-word", help="Text that ends the output; repeatable.")
]
BadWords = Annotated[
    list[str] | None, typer.Option("--bad-word", help="Text that is never generated; repeatable.")
]
Bias = Annotated[
    list[str] | None,
    typer.Option(metavar="WORD=WEIGHT", help="Added to the logits of a word; repeatable."),
]
Timeout = Annotated[float, typer.Option(help="Timeout of a request in seconds.")]
Tls = Annotated[bool, typer.Option("--tls", help="Use TLS.")]
Root = Annotated[
    str | None, typer.Option("--ca", help="PEM file of the server's certificate authority.")
]
Key = Annotated[str | None, typer.Option("--key", help="PEM file of the client's private key.")]
Chain = Annotated[
    str | None, typer.Option("--cert", help="PEM file of the client's certificate chain.")
]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME: VALUE", help="Sent with every request; repeatable."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]
AsObject = Annotated[bool, typer.Option("--json", help="One JSON object.")]
ConcurrentPrompts = Annotated[int, typer.Option(help="Concurrent prompts.")]
# Persian, Indic scripts and many emoji need the two joiners.
_KEPT = "\n\t\u200c\u200d"


@contextmanager
def report_errors() -> Iterator[None]:
    """End the command with one sentence and the exit status of a client's error."""
    try:
        yield
    except ClientError as error:
        typer.echo(f"specdec: {error}", err=True)
        raise typer.Exit(error.exit_status) from None


def print_text(text: str, *, nl: bool = True) -> None:
    """Print a model's or a log's text with its control characters escaped.

    Pagers, the logs of CI systems and `cat` of a saved file interpret them like a terminal.
    `--json` prints a text exactly.
    """
    typer.echo(plain(text, _KEPT), nl=nl)


def address(params: Mapping[str, Any]) -> str:
    """`--url`, or the default of `--protocol`, as `kubectl port-forward` provides it."""
    default = "localhost:8000" if params["protocol"] is Protocol.HTTP else "localhost:8001"
    return params["url"] or default


def connection(params: Mapping[str, Any], url: str) -> Connection:
    """The connection that a command's options describe."""
    return _connection(Connection, params, url)


def front_connection(params: Mapping[str, Any], url: str) -> Connection:
    """Like `connection`; the URL may be that of an OpenAI endpoint."""
    return _connection(of_url, params, url)


def model(params: Mapping[str, Any], connection: Connection) -> str:
    """`--model`; by default the BLS, or the only model of an OpenAI endpoint (empty)."""
    return params["model"] or ("" if connection.path else BLS)


def _connection(
    create: Callable[..., Connection], params: Mapping[str, Any], url: str
) -> Connection:
    return create(
        url,
        timeout=params["timeout"],
        tls=params["tls"],
        root_certificates=params["root"],
        private_key=params["key"],
        certificate_chain=params["chain"],
        headers=headers(params["header"] or ()),
    )


def fields_of(kind: type, params: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are fields of a dataclass, with the word lists in its format."""
    names = {field.name for field in fields(kind)}
    values = {name: value for name, value in params.items() if name in names}
    weighted = [_weight(entry) for entry in params["bias"] or ()]
    return {
        **values,
        "stop_words": tuple(params["stop_words"] or ()),
        "bad_words": tuple(params["bad_words"] or ()),
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


def prompts(params: Mapping[str, Any]) -> list[str]:
    """The prompts, from exactly one of the three options for them.

    Raises:
        BadRequestError: none or several options are given, a file cannot be read, or a line is
            not a JSON object with a text under `prompt`.
    """
    file, lines = params["prompt_file"], params["prompts_file"]
    if sum(map(bool, (params["prompt"], file, lines))) != 1:
        raise BadRequestError("give either --prompt, --prompt-file or --prompts-file")
    if file:
        return [read(file, "--prompt-file")]
    if not lines:
        return list(params["prompt"])
    from specdec.client import dataset

    entries = dataset.parse(read(lines, "--prompts-file"), f"--prompts-file {lines}")
    return [entry.prompt for entry in entries]


def read(file: str, option: str) -> str:
    """Read a text file, or stdin for `-`."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequestError(
            f"{option} {file} cannot be read ({error}); name a text file"
        ) from error
