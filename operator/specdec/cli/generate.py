"""`specdec generate`. What speaks to a server is loaded when the command runs."""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specdec.cli import options as a
from specdec.client.errors import ClientError
from specdec.client.names import BLS

if TYPE_CHECKING:
    from specdec.client.answer import Answer, Chunk
    from specdec.client.generate import Client
    from specdec.client.request import Request

_AT_ONCE = 16


def generate(
    context: typer.Context,
    prompt: a.Prompts = None,
    prompt_file: a.PromptFile = None,
    prompts_file: a.PromptsFile = None,
    url: a.Url = None,
    protocol: Annotated[a.Protocol, typer.Option(help="What is spoken there.")] = a.Protocol.GRPC,
    model: Annotated[str, typer.Option(help=f"{BLS} speculates, ensemble does not.")] = BLS,
    max_tokens: a.MaxTokens = 64,
    draft_tokens: Annotated[
        int | None, typer.Option(help="Draft tokens a round; default: the server's; 0: off.")
    ] = None,
    use_draft_logits: Annotated[
        bool | None, typer.Option(help="Accept by logits; default: the server's way.")
    ] = None,
    stream: Annotated[bool, typer.Option(help="Print chunks as they arrive.")] = True,
    temperature: a.Temperature = None,
    top_k: a.TopK = None,
    top_p: a.TopP = None,
    seed: a.Seed = None,
    min_tokens: a.MinTokens = None,
    beam_width: Annotated[int | None, typer.Option(help="Beams; without speculation.")] = None,
    repetition_penalty: a.RepetitionPenalty = None,
    presence_penalty: a.PresencePenalty = None,
    frequency_penalty: a.FrequencyPenalty = None,
    length_penalty: a.LengthPenalty = None,
    end_id: a.EndId = None,
    pad_id: a.PadId = None,
    stop_words: a.StopWords = None,
    bad_words: a.BadWords = None,
    bias: a.Bias = None,
    log_probs: Annotated[bool, typer.Option("--log-probs", help="Return them.")] = False,
    context_logits: Annotated[bool, typer.Option("--context-logits", help="Return them.")] = False,
    generation_logits: Annotated[
        bool, typer.Option("--generation-logits", help="Return them.")
    ] = False,
    token_counts: Annotated[
        bool,
        typer.Option("--token-counts", help="Return prompt's and answer's numbers of tokens."),
    ] = False,
    timeout: a.Timeout = 120.0,
    tls: a.Tls = False,
    root: a.Root = None,
    key: a.Key = None,
    chain: a.Chain = None,
    header: a.Headers = None,
    as_json: a.AsJson = False,
) -> None:
    """Ask a served model to continue prompts.

    Several prompts are requests of their own, sent together; their answers come in order. With
    --json every chunk is a line, and the last line of a prompt sums up.

    Exit status: 0 answered, 1 refused by the server, 2 bad input, 3 nobody answers.
    """
    with a.explained():
        _run(context.params)


def _run(given: Mapping[str, Any]) -> None:
    from specdec.client.request import Request

    prompts = a.prompts(given)
    options = a.known(Request, {k: v for k, v in given.items() if k != "prompt"})
    requests = [Request(prompt, **options) for prompt in prompts]
    if len(requests) > 1:
        _several(given, requests)
        return
    with _client(given) as client:
        _print(client, requests[0], given["as_json"])


def _client(given: Mapping[str, Any]) -> "Client":
    from specdec.client.generate import Client

    return Client(a.connection(given, a.address(given)), protocol=given["protocol"].value)


def _several(given: Mapping[str, Any], requests: "list[Request]") -> None:
    """Every request over a connection of its own: one that fails costs the others nothing."""

    def ask(request: "Request") -> "Answer | ClientError":
        try:
            with _client(given) as client:
                return client.ask(request)
        except ClientError as error:
            return error

    failed: list[int] = []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for index, told in enumerate(pool.map(ask, requests)):
            if isinstance(told, ClientError):
                failed.append(told.exit_status)
                typer.echo(f"specdec: prompt {index + 1}: {told}", err=True)
            elif given["as_json"]:
                typer.echo(json.dumps({"done": True, "index": index, **_plain(told)}))
            else:
                a.say(told.text)
                for line in _lines(told):
                    typer.echo(line, err=True)
    if failed:
        raise typer.Exit(max(failed))


def _print(client: "Client", request: "Request", as_json: bool) -> None:
    from specdec.client.answer import Answer

    started = time.monotonic()
    answer = Answer()
    for chunk in client.generate(request):
        answer = answer.add(chunk, time.monotonic() - started)
        _print_chunk(chunk, as_json)
    if as_json:
        typer.echo(json.dumps({"done": True, **_plain(answer)}))
        return
    typer.echo()
    for line in _lines(answer):
        typer.echo(line, err=True)


def _print_chunk(chunk: "Chunk", as_json: bool) -> None:
    if as_json:
        extras = {name: array.tolist() for name, array in chunk.extras.items()}
        typer.echo(json.dumps({"text": chunk.text, **extras}))
    else:
        a.say(chunk.text, nl=False)
        sys.stdout.flush()


def _plain(answer: "Answer") -> dict[str, Any]:
    counts = answer.counts
    told: dict[str, Any] = {
        "text": answer.text,
        "chunks": answer.chunks,
        "counts": counts and {"drafted": counts.drafted, "accepted": counts.accepted},
        "first_chunk_seconds": answer.first_chunk_seconds,
        "seconds": answer.seconds,
    }
    if answer.log_probs:
        told["log_probs"] = answer.log_probs
    if len(answer.beams) > 1:
        told["beams"] = answer.beams
    extras = {name: array.tolist() for name, array in answer.extras.items()}
    # Those of the last chunk; `log_probs` has all of them.
    extras.pop("output_log_probs", None)
    return {**told, **extras}


def _lines(answer: "Answer") -> Iterator[str]:
    yield summary(answer)
    if answer.log_probs:
        yield f"log probabilities: {' '.join(f'{value:.3f}' for value in answer.log_probs)}"
    for number, beam in enumerate(answer.beams[1:], 2):
        yield f"beam {number}: {beam}"
    for name, array in answer.extras.items():
        if array.size == 1:
            yield f"{name}: {array.item():g}"
        elif name != "output_log_probs":
            yield f"{name}: {' x '.join(map(str, array.shape))} values; --json prints them"


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
