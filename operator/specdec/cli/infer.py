"""`specdec infer`. What speaks to a server is loaded when the command runs."""

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specdec.cli import options as a
from specdec.client.errors import BadRequestError

if TYPE_CHECKING:
    from specdec.client.infer import Output


class Format(StrEnum):
    """How ids are written: with commas, as a JSON list, or as text of a tokenizer."""

    CSV = "csv"
    JSON = "json"
    TEXT = "text"


def infer(
    context: typer.Context,
    tokens: Annotated[str | None, typer.Option(help="Input ids, for example 5,17,9.")] = None,
    tokens_file: Annotated[str | None, typer.Option(help="File with them; - is stdin.")] = None,
    draft: Annotated[str | None, typer.Option(help="Draft ids to verify in one round.")] = None,
    expect: Annotated[str | None, typer.Option(help="Ids that should come back.")] = None,
    expect_file: Annotated[str | None, typer.Option(help="File with them; - is stdin.")] = None,
    threshold: Annotated[float, typer.Option(help="Share of places that must agree.")] = 1.0,
    format: Annotated[Format, typer.Option(help="How ids are written.")] = Format.CSV,
    tokenizer: Annotated[
        str | None, typer.Option(help="tokenizer.json, or a folder with it, for text.")
    ] = None,
    url: Annotated[str, typer.Option(help="gRPC endpoint, host:port.")] = "localhost:8001",
    model: Annotated[str, typer.Option(help="The engine's model.")] = "tensorrt_llm",
    max_tokens: a.MaxTokens = 16,
    stream: Annotated[bool, typer.Option(help="Print ids as they come.")] = False,
    cancel_after: Annotated[
        int | None, typer.Option(metavar="MS", help="Cancel the request so late.")
    ] = None,
    temperature: a.Temperature = None,
    top_k: a.TopK = None,
    top_p: a.TopP = None,
    seed: a.Seed = None,
    min_tokens: a.MinTokens = None,
    beam_width: Annotated[int | None, typer.Option(help="Beams; the first is given.")] = None,
    repetition_penalty: a.RepetitionPenalty = None,
    presence_penalty: a.PresencePenalty = None,
    frequency_penalty: a.FrequencyPenalty = None,
    length_penalty: a.LengthPenalty = None,
    end_id: a.EndId = None,
    pad_id: a.PadId = None,
    timeout: a.Timeout = 120.0,
    tls: a.Tls = False,
    root: a.Root = None,
    key: a.Key = None,
    chain: a.Chain = None,
    header: a.Headers = None,
    as_json: a.AsJson = False,
) -> None:
    """Ask an engine alone, with token ids and no tokenizer on the server.

    Exit status: 0 answered, 1 refused by the server or not what was expected, 2 bad input,
    3 nobody answers.
    """
    with a.explained():
        _run({**context.params, "bias": None, "stop_words": None, "bad_words": None})


def _run(given: Mapping[str, Any]) -> None:
    import asyncio

    from specdec.client.infer import Inference
    from specdec.client.infer import infer as ask

    read, write = _codec(given["format"], given["tokenizer"])
    options = a.known(Inference, {k: v for k, v in given.items() if k != "draft"})
    ids = _given(given, "tokens", read)
    if ids is None:
        raise BadRequestError("there is no input; give --tokens or --tokens-file")
    expected = _given(given, "expect", read)
    if not 0 <= given["threshold"] <= 1:
        raise BadRequestError(f"--threshold is {given['threshold']:g}; set it between 0 and 1")
    inference = Inference(ids=ids, draft=read(given["draft"] or "", "--draft"), **options)
    late = given["cancel_after"]
    if late is not None and late < 1:
        raise BadRequestError(f"--cancel-after is {late}; give milliseconds above 0")
    shown = given["stream"] and not given["as_json"]
    output = asyncio.run(
        ask(
            a.connection(given, given["url"]),
            inference,
            cancel_after=None if late is None else late / 1000,
            tell=(lambda new: a.say(write(new)) if new else None) if shown else None,
        )
    )
    _tell(output, given["as_json"], None if shown else write)
    if expected is not None:
        _compare(expected, output.tokens, given["threshold"])


def _given(
    given: Mapping[str, Any], name: str, read: Callable[[str, str], tuple[int, ...]]
) -> tuple[int, ...] | None:
    text, file = given[name], given[f"{name}_file"]
    if text is not None and file is not None:
        raise BadRequestError(f"give either --{name} or --{name}-file")
    if file is not None:
        return read(a.read(file, f"--{name}-file"), f"--{name}-file {file}")
    return None if text is None else read(text, f"--{name}")


def _codec(
    form: Format, tokenizer: str | None
) -> tuple[Callable[[str, str], tuple[int, ...]], Callable[[list[int]], str]]:
    """How ids are read from a text (with the option's name for errors), and written."""
    if form is Format.TEXT:
        known = _tokenizer(tokenizer)
        return lambda text, _: tuple(known.encode(text).ids), lambda ids: str(known.decode(ids))
    if form is Format.JSON:
        return _from_json, json.dumps
    return _from_csv, lambda ids: ",".join(map(str, ids))


def _from_csv(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.replace("\n", ",").split(",") if word.strip())
    except ValueError as error:
        raise BadRequestError(f"{option} holds no ids ({error}); write 5,17,9") from error


def _from_json(text: str, option: str) -> tuple[int, ...]:
    try:
        ids = json.loads(text or "[]")
    except ValueError as error:
        raise BadRequestError(f"{option} is no JSON ({error}); write [5, 17, 9]") from error
    if not isinstance(ids, list) or not all(type(token) is int for token in ids):
        raise BadRequestError(f"{option} is no list of ids; write [5, 17, 9]")
    return tuple(ids)


def _tokenizer(place: str | None) -> Any:
    if place is None:
        raise BadRequestError("text needs a tokenizer; give --tokenizer, or --format csv or json")
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError as error:
        raise BadRequestError(
            "text needs the package tokenizers; run: pip install tokenizers"
        ) from error
    path = Path(place)
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        return Tokenizer.from_buffer(file.read_bytes())
    except (OSError, ValueError) as error:
        raise BadRequestError(
            f"--tokenizer {place} cannot be read ({error}); name a tokenizer.json"
        ) from error


def _tell(output: "Output", as_json: bool, write: Callable[[list[int]], str] | None) -> None:
    if as_json:
        typer.echo(json.dumps(vars(output)))
        return
    if write is not None:
        a.say(write(output.tokens))
    drafts = f", {output.accepted} of {output.drafted} drafts accepted" if output.drafted else ""
    end = ", cancelled" if output.cancelled else ""
    typer.echo(
        f"{len(output.tokens)} tokens in {output.responses} responses{drafts}{end}", err=True
    )


def _compare(expected: tuple[int, ...], got: list[int], threshold: float) -> None:
    from specdec.client.infer import agreement

    share, first = agreement(expected, got)
    where = "" if first is None else f", the first difference at place {first}"
    typer.echo(f"{100 * share:.1f} % of the places agree{where}", err=True)
    if share < threshold:
        raise typer.Exit(1)
