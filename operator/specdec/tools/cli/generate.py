"""The command `specdec generate`; it imports the client only when it runs."""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specdec.client.errors import ClientError
from specdec.tools.cli import options as opt
from specdec.tools.cli.cluster_options import KubeContext, Namespace
from specdec.tools.cli.forward import forwarded

if TYPE_CHECKING:
    from specdec.client.answer import Answer, Chunk
    from specdec.client.connection import Connection
    from specdec.client.generate import Client
    from specdec.servers.request import Request

_MAX_CONCURRENT = 16

LookupScope = Annotated[
    str | None, typer.Option(help="Name of a group of texts to search for drafts; default: none.")
]
LogProbs = Annotated[bool, typer.Option("--log-probs", help="Return log probabilities.")]
ContextLogits = Annotated[
    bool, typer.Option("--context-logits", help="Return logits of the prompt.")
]
GenerationLogits = Annotated[
    bool, typer.Option("--generation-logits", help="Return logits of the output.")
]
TokenCounts = Annotated[
    bool, typer.Option("--token-counts", help="Return the numbers of input and output tokens.")
]
Chat = Annotated[
    bool, typer.Option("--chat", help="Send the prompt as a chat message (OpenAI only).")
]
DraftTokens = Annotated[
    int | None, typer.Option(help="Draft tokens per round; default: the server's; 0: off.")
]
UseDraftLogits = Annotated[
    bool | None, typer.Option(help="Accept by logits; default: as the server is set.")
]
BeamWidth = Annotated[int | None, typer.Option(help="Number of beams; the BLS accepts only 1.")]


def generate(
    context: typer.Context,
    prompt: opt.Prompts = None,
    prompt_file: opt.PromptFile = None,
    prompts_file: opt.PromptsFile = None,
    url: opt.Url = None,
    protocol: Annotated[opt.Protocol, typer.Option(help="Protocol.")] = opt.Protocol.GRPC,
    model: opt.Model = None,
    chat: Chat = False,
    max_tokens: opt.MaxTokens = 64,
    draft_tokens: DraftTokens = None,
    use_draft_logits: UseDraftLogits = None,
    lookup_scope: LookupScope = None,
    stream: Annotated[bool, typer.Option(help="Print chunks as they arrive.")] = True,
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
    stop_words: opt.StopWords = None,
    bad_words: opt.BadWords = None,
    bias: opt.Bias = None,
    log_probs: LogProbs = False,
    context_logits: ContextLogits = False,
    generation_logits: GenerationLogits = False,
    token_counts: TokenCounts = False,
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
    """Generate text with a served model.

    Several prompts are sent as concurrent requests; their responses are printed in order. With
    --json, a single prompt prints a line for each chunk and then a summary; several prompts print
    one summary each. An example with an OpenAI endpoint:
    specdec generate --url http://localhost:9000/v1 --chat --prompt hello.

    Exit status: 0 success, 1 refused by the server, 2 bad input, 3 the server cannot be reached.
    """
    with opt.report_errors(), forwarded(context.params, "url") as params:
        _run(params)


def _run(params: Mapping[str, Any]) -> None:
    from specdec.servers.request import Request

    prompts = opt.prompts(params)
    model = opt.model(params, _where(params))
    options = opt.fields_of(
        Request, {k: v for k, v in params.items() if k != "prompt"} | {"model": model}
    )
    requests = [Request(prompt, **options) for prompt in prompts]
    if len(requests) > 1:
        _several(params, requests)
        return
    with _client(params) as client:
        _print(client, requests[0], params["as_json"])


def _client(params: Mapping[str, Any]) -> "Client":
    from specdec.client.generate import Client

    return Client(_where(params), protocol=params["protocol"].value)


def _where(params: Mapping[str, Any]) -> "Connection":
    return opt.front_connection(params, opt.address(params))


def _several(params: Mapping[str, Any], requests: "list[Request]") -> None:
    """Send every request on its own connection, so that a failure does not affect the others."""

    def ask(request: "Request") -> "Answer | ClientError":
        try:
            with _client(params) as client:
                return client.ask(request)
        except ClientError as error:
            return error

    failed: list[int] = []
    with ThreadPoolExecutor(_MAX_CONCURRENT) as pool:
        for index, result in enumerate(pool.map(ask, requests)):
            if isinstance(result, ClientError):
                failed.append(result.exit_status)
                typer.echo(f"specdec: prompt {index + 1}: {result}", err=True)
            elif params["as_json"]:
                typer.echo(json.dumps({"done": True, "index": index, **_as_json(result)}))
            else:
                opt.print_text(result.text)
                for line in _lines(result):
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
        typer.echo(json.dumps({"done": True, **_as_json(answer)}))
        return
    typer.echo()
    for line in _lines(answer):
        typer.echo(line, err=True)


def _print_chunk(chunk: "Chunk", as_json: bool) -> None:
    if as_json:
        outputs = {name: array.tolist() for name, array in chunk.optional_outputs.items()}
        typer.echo(json.dumps({"text": chunk.text, **outputs}))
    else:
        opt.print_text(chunk.text, nl=False)
        sys.stdout.flush()


def _as_json(answer: "Answer") -> dict[str, Any]:
    counts = answer.counts
    fields: dict[str, Any] = {
        "text": answer.text,
        "chunks": answer.chunks,
        "counts": counts and {"drafted": counts.drafted, "accepted": counts.accepted},
        "first_chunk_seconds": answer.first_chunk_seconds,
        "seconds": answer.seconds,
    }
    if answer.log_probs:
        fields["log_probs"] = answer.log_probs
    if len(answer.beams) > 1:
        fields["beams"] = answer.beams
    outputs = {name: array.tolist() for name, array in answer.optional_outputs.items()}
    # This output has the values of the last chunk only; `log_probs` has all values.
    outputs.pop("output_log_probs", None)
    return {**fields, **outputs}


def _lines(answer: "Answer") -> Iterator[str]:
    yield summary(answer)
    if answer.log_probs:
        yield f"log probabilities: {' '.join(f'{value:.3f}' for value in answer.log_probs)}"
    for number, beam in enumerate(answer.beams[1:], 2):
        yield f"beam {number}: {beam}"
    for name, array in answer.optional_outputs.items():
        if array.size == 1:
            yield f"{name}: {array.item():g}"
        elif name != "output_log_probs":
            yield f"{name}: {' x '.join(map(str, array.shape))} values; --json prints them"


def summary(answer: "Answer") -> str:
    """One line about duration and acceptance."""
    took = f"{answer.chunks} chunks in {answer.seconds:.2f} s"
    if answer.counts is None:
        return f"{took}; this model does not report draft tokens"
    if not answer.counts.drafted:
        return f"{took}; 0 tokens drafted, 0 accepted: no draft tokens were used"
    rate = 100 * answer.counts.accepted / answer.counts.drafted
    return (
        f"{took}; {answer.counts.drafted} tokens drafted, "
        f"{answer.counts.accepted} accepted ({rate:.0f} %)"
    )
