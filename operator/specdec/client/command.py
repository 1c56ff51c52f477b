"""`specdec generate`. What speaks to a server is loaded when the command runs."""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specdec.client.errors import BadRequestError, ClientError
from specdec.triton.repository import BLS

if TYPE_CHECKING:
    from specdec.client.generate import Answer, Chunk, Client
    from specdec.client.request import Request


def generate(
    prompt: Annotated[str | None, typer.Option(help="Text to continue.")] = None,
    prompt_file: Annotated[
        str | None, typer.Option(help="File with the text to continue; - is stdin.")
    ] = None,
    url: Annotated[str, typer.Option(help="gRPC endpoint, host:port.")] = "localhost:8001",
    model: Annotated[str, typer.Option(help=f"{BLS} speculates, ensemble does not.")] = BLS,
    max_tokens: Annotated[int, typer.Option(help="New tokens at most.")] = 64,
    draft_tokens: Annotated[
        int | None, typer.Option(help="Draft tokens a round; default: the server's; 0: off.")
    ] = None,
    stream: Annotated[bool, typer.Option(help="Print chunks as they arrive.")] = True,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the sampler.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds the answer may take.")] = 120.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per line; the last sums up.")
    ] = False,
) -> None:
    """Ask a served model to continue a prompt.

    Exit status: 0 answered, 1 refused by the server, 2 bad input, 3 nobody answers.
    """
    from specdec.client.generate import Client
    from specdec.client.request import Request

    try:
        request = Request(
            prompt=_text(prompt, prompt_file),
            model=model,
            max_tokens=max_tokens,
            draft_tokens=draft_tokens,
            stream=stream,
            temperature=temperature,
            seed=seed,
        )
        with Client(url, timeout) as client:
            _print(client, request, as_json)
    except ClientError as error:
        typer.echo(f"specdec: {error}", err=True)
        raise typer.Exit(error.exit_status) from None


def _text(prompt: str | None, file: str | None) -> str:
    if (prompt is None) == (file is None):
        raise BadRequestError("give either --prompt or --prompt-file")
    if file is None:
        return prompt or ""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequestError(
            f"--prompt-file {file} cannot be read ({error}); name a text file"
        ) from error


def _print(client: "Client", request: "Request", as_json: bool) -> None:
    from specdec.client.generate import Answer

    started = time.monotonic()
    answer = Answer()
    for chunk in client.generate(request):
        answer = answer.add(chunk, time.monotonic() - started)
        _print_chunk(chunk, as_json)
    if as_json:
        typer.echo(json.dumps({"done": True, **asdict(answer)}))
        return
    typer.echo()
    typer.echo(summary(answer), err=True)


def _print_chunk(chunk: "Chunk", as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"text": chunk.text}))
    else:
        typer.echo(chunk.text, nl=False)
        sys.stdout.flush()


def summary(answer: "Answer") -> str:
    """One line about what speculation did, in plain words."""
    took = f"{answer.chunks} chunks in {answer.seconds:.2f} s"
    if answer.counts is None:
        return f"{took}; this model does not tell draft tokens"
    if not answer.counts.drafted:
        return f"{took}; no draft tokens were used"
    rate = 100 * answer.counts.accepted / answer.counts.drafted
    return (
        f"{took}; {answer.counts.drafted} tokens drafted, "
        f"{answer.counts.accepted} accepted ({rate:.0f} %)"
    )
