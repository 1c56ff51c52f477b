"""The command `specdec infer`; it imports the client only when it runs."""

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specdec.client.errors import BadRequestError
from specdec.tools.cli import options as opt
from specdec.tools.cli.cluster_options import KubeContext, Namespace
from specdec.tools.cli.forward import forwarded
from specdec.triton.model_names import TARGET

if TYPE_CHECKING:
    from specdec.client.infer import Output


class Format(StrEnum):
    """How token ids are read and written: with commas, as JSON, or as text by a tokenizer."""

    CSV = "csv"
    JSON = "json"
    TEXT = "text"


TokensFile = Annotated[str | None, typer.Option(help="File with input ids; - is stdin.")]
Lookahead = Annotated[
    str | None,
    typer.Option(
        metavar="W,N,G",
        help="Sizes of lookahead decoding for this request, at most those of the engine: "
        "window, n-gram and verification set.",
    ),
]
ExpectFile = Annotated[str | None, typer.Option(help="File with expected ids; - is stdin.")]
Tokenizer = Annotated[
    str | None, typer.Option(help="tokenizer.json or its directory, for --format text.")
]
Url = Annotated[str, typer.Option(help="gRPC endpoint, host:port, or specm/NAME.")]
CancelAfter = Annotated[
    int | None, typer.Option(metavar="MS", help="Cancel the request after so many ms.")
]
BeamWidth = Annotated[int | None, typer.Option(help="Number of beams; the first one is printed.")]


def infer(
    context: typer.Context,
    tokens: Annotated[str | None, typer.Option(help="Input ids, for example 5,17,9.")] = None,
    tokens_file: TokensFile = None,
    draft: Annotated[str | None, typer.Option(help="Draft ids to verify in one step.")] = None,
    lookahead: Lookahead = None,
    expect: Annotated[str | None, typer.Option(help="Expected output ids.")] = None,
    expect_file: ExpectFile = None,
    threshold: Annotated[float, typer.Option(help="Share of positions that must be equal.")] = 1.0,
    format: Annotated[Format, typer.Option(help="Format of token ids.")] = Format.CSV,
    tokenizer: Tokenizer = None,
    url: Url = "localhost:8001",
    model: Annotated[str, typer.Option(help="The engine's model.")] = TARGET,
    max_tokens: opt.MaxTokens = 16,
    stream: Annotated[bool, typer.Option(help="Print ids as they arrive.")] = False,
    cancel_after: CancelAfter = None,
    temperature: opt.Temperature = None,
    top_k: opt.TopK = None,
    top_p: opt.TopP = None,
    seed: opt.Seed = None,
    min_tokens: opt.MinTokens = None,
    beam_width: BeamWidth = None,
    repetition_penalty: opt.RepetitionPenalty = None,
    presence_penalty: opt.PresencePenalty = None,
    frequency_penalty: opt.FrequencyPenalty = None,
    length_penalty: opt.LengthPenalty = None,
    end_id: opt.EndId = None,
    pad_id: opt.PadId = None,
    timeout: opt.Timeout = 120.0,
    tls: opt.Tls = False,
    root: opt.Root = None,
    key: opt.Key = None,
    chain: opt.Chain = None,
    header: opt.Headers = None,
    namespace: Namespace = None,
    kube_context: KubeContext = None,
    as_json: opt.AsJson = False,
) -> None:
    """Send token ids to an engine directly, without the server's tokenizer.

    Exit status: 0 success, 1 refused by the server or unexpected output, 2 bad input, 3 the server
    cannot be reached.
    """
    with opt.report_errors(), forwarded(context.params, "url") as params:
        _run({**params, "bias": None, "stop_words": None, "bad_words": None})


def _run(params: Mapping[str, Any]) -> None:
    import asyncio

    from specdec.client.infer import Inference
    from specdec.client.infer import infer as ask

    read, write = _codec(params["format"], params["tokenizer"])
    parsed = ("draft", "lookahead")
    options = opt.fields_of(Inference, {k: v for k, v in params.items() if k not in parsed})
    ids = _ids(params, "tokens", read)
    if ids is None:
        raise BadRequestError("there is no input: give --tokens or --tokens-file")
    expected = _ids(params, "expect", read)
    if not 0 <= params["threshold"] <= 1:
        raise BadRequestError(f"--threshold is {params['threshold']:g}; set it between 0 and 1")
    draft = read(params["draft"] or "", "--draft")
    lookahead = _from_csv(params["lookahead"] or "", "--lookahead")
    inference = Inference(ids=ids, draft=draft, lookahead=lookahead, **options)
    cancel_ms = params["cancel_after"]
    if cancel_ms is not None and cancel_ms < 1:
        raise BadRequestError(f"--cancel-after is {cancel_ms}; give milliseconds above 0")
    streaming = params["stream"] and not params["as_json"]
    output = asyncio.run(
        ask(
            opt.connection(params, params["url"]),
            inference,
            cancel_after=None if cancel_ms is None else cancel_ms / 1000,
            on_result=(lambda new: opt.print_text(write(new)) if new else None)
            if streaming
            else None,
        )
    )
    _print(output, params["as_json"], None if streaming else write)
    if expected is not None:
        _compare(expected, output.tokens, params["threshold"])


def _ids(
    params: Mapping[str, Any], name: str, read: Callable[[str, str], tuple[int, ...]]
) -> tuple[int, ...] | None:
    text, file = params[name], params[f"{name}_file"]
    if text is not None and file is not None:
        raise BadRequestError(f"give either --{name} or --{name}-file")
    if file is not None:
        return read(opt.read(file, f"--{name}-file"), f"--{name}-file {file}")
    return None if text is None else read(text, f"--{name}")


def _codec(
    form: Format, tokenizer: str | None
) -> tuple[Callable[[str, str], tuple[int, ...]], Callable[[list[int]], str]]:
    """Functions to read ids from a text (with the option's name for errors) and to write them."""
    if form is Format.TEXT:
        codec = _tokenizer(tokenizer)
        return lambda text, _: tuple(codec.encode(text).ids), lambda ids: str(codec.decode(ids))
    if form is Format.JSON:
        return _from_json, json.dumps
    return _from_csv, lambda ids: ",".join(map(str, ids))


def _from_csv(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.replace("\n", ",").split(",") if word.strip())
    except ValueError as error:
        raise BadRequestError(f"{option} is not a list of ids ({error}); write 5,17,9") from error


def _from_json(text: str, option: str) -> tuple[int, ...]:
    try:
        ids = json.loads(text or "[]")
    except ValueError as error:
        raise BadRequestError(f"{option} is not valid JSON ({error}); write [5, 17, 9]") from error
    if not isinstance(ids, list) or not all(type(token) is int for token in ids):
        raise BadRequestError(f"{option} is not a list of ids; write [5, 17, 9]")
    return tuple(ids)


def _tokenizer(location: str | None) -> Any:
    if location is None:
        raise BadRequestError("text needs a tokenizer; give --tokenizer, or --format csv or json")
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError as error:
        raise BadRequestError(
            "text needs the package tokenizers; run: pip install tokenizers"
        ) from error
    path = Path(location)
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        return Tokenizer.from_buffer(file.read_bytes())
    except (OSError, ValueError) as error:
        raise BadRequestError(
            f"--tokenizer {location} cannot be read ({error}); name a tokenizer.json"
        ) from error


def _print(output: "Output", as_json: bool, write: Callable[[list[int]], str] | None) -> None:
    if as_json:
        typer.echo(json.dumps(vars(output)))
        return
    if write is not None:
        opt.print_text(write(output.tokens))
    drafts = f", {output.accepted} of {output.drafted} drafts accepted" if output.drafted else ""
    end = ", cancelled" if output.cancelled else ""
    typer.echo(
        f"{len(output.tokens)} tokens in {output.responses} responses{drafts}{end}", err=True
    )


def _compare(expected: tuple[int, ...], actual: list[int], threshold: float) -> None:
    from specdec.client.infer import agreement

    share, first = agreement(expected, actual)
    where = "" if first is None else f", the first difference at position {first}"
    typer.echo(f"{100 * share:.1f} % of the positions are equal{where}", err=True)
    if share < threshold:
        raise typer.Exit(1)
