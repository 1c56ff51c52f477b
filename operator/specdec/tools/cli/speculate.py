"""The command `specdec speculate`; it imports the client only when it runs."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specdec.tools.cli import options as opt
from specdec.tools.cli.cluster_options import KubeContext, Namespace
from specdec.tools.cli.forward import forwarded
from specdec.triton.model_names import TARGET

if TYPE_CHECKING:
    from specdec.client.speculate import Result, Step

Target = Annotated[
    str, typer.Option(help="gRPC endpoint of the target, host:port, or specm/NAME.")
]
Draft = Annotated[
    str | None, typer.Option(help="gRPC endpoint of the draft; default: the target's.")
]
DraftModel = Annotated[
    str | None, typer.Option(help="Engine of the draft; tensorrt_llm_draft without --draft.")
]
UseDraftLogits = Annotated[
    bool, typer.Option("--use-draft-logits", help="Accept by logits, not by tokens.")
]
DraftLogits = Annotated[
    bool, typer.Option("--draft-logits", help="Print the draft's logits of every round.")
]
AcceptedLogits = Annotated[
    bool, typer.Option("--accepted-logits", help="Print the target's logits of every round.")
]
CheckVocabulary = Annotated[
    bool, typer.Option(help="Refuse prompts that the servers tokenize differently.")
]


def speculate(
    context: typer.Context,
    prompt: opt.Prompts = None,
    prompt_file: opt.PromptFile = None,
    prompts_file: opt.PromptsFile = None,
    target: Target = "localhost:8001",
    draft: Draft = None,
    target_model: Annotated[str, typer.Option(help="Engine of the target.")] = TARGET,
    draft_model: DraftModel = None,
    max_tokens: opt.MaxTokens = 64,
    draft_tokens: Annotated[int, typer.Option(help="Draft tokens per round; 0: off.")] = 4,
    concurrency: opt.ConcurrentPrompts = 16,
    use_draft_logits: UseDraftLogits = False,
    draft_logits: DraftLogits = False,
    accepted_logits: AcceptedLogits = False,
    check_vocabulary: CheckVocabulary = True,
    temperature: opt.Temperature = None,
    top_k: opt.TopK = None,
    top_p: opt.TopP = None,
    seed: opt.Seed = None,
    min_tokens: opt.MinTokens = None,
    repetition_penalty: opt.RepetitionPenalty = None,
    presence_penalty: opt.PresencePenalty = None,
    frequency_penalty: opt.FrequencyPenalty = None,
    end_id: opt.EndId = None,
    pad_id: opt.PadId = None,
    stop_words: opt.StopWords = None,
    bad_words: opt.BadWords = None,
    bias: opt.Bias = None,
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
    """Run the draft/target loop in this client, with one server per model or one for both.

    Each response is printed when it is complete. A failed prompt is reported and does not affect
    the others.

    Exit status: 0 success, 1 refused by a server, 2 bad input, 3 a server cannot be reached.
    """
    with opt.report_errors(), forwarded(context.params, "target", "draft") as params:
        _run(params)


def _run(params: dict[str, Any]) -> None:
    import asyncio

    from specdec.client.speculate import Options
    from specdec.client.speculate import speculate as run

    prompts = opt.prompts(params)
    draft = params["draft"]
    coroutine = run(
        prompts,
        Options(**opt.fields_of(Options, params)),
        opt.connection(params, params["target"]),
        opt.connection(params, draft) if draft else None,
        concurrency=params["concurrency"],
        on_result=_print_json if params["as_json"] else _print,
    )
    results = asyncio.run(coroutine)
    if len(results) > 1 and not params["as_json"]:
        typer.echo(_summary(results), err=True)
    statuses = [result.error.exit_status for result in results if result.error]
    if statuses:
        raise typer.Exit(max(statuses))


def _print(result: "Result") -> None:
    if result.tokens:
        opt.print_text(result.text)
    for number, step in enumerate(result.steps, 1):
        for name in ("draft_logits", "accepted_logits"):
            logits = getattr(step, name)
            if logits is not None and logits.size:
                best = [f"{row.argmax()} ({row.max():.2f})" for row in logits]
                typer.echo(f"round {number} {name}, the highest: {' '.join(best)}", err=True)
    if result.error:
        typer.echo(f"specdec: prompt {result.index + 1}: {result.error}", err=True)
    else:
        typer.echo(_summary([result]), err=True)


def _summary(results: "list[Result]") -> str:
    """One line about rounds and acceptance."""
    count = sum(len(result.tokens) for result in results)
    rounds = sum(len(result.steps) for result in results)
    drafted = sum(result.drafted for result in results)
    accepted = sum(result.accepted for result in results)
    share = f" ({100 * accepted / drafted:.0f} %)" if drafted else ""
    return f"{count} tokens in {rounds} rounds; {drafted} drafted, {accepted} accepted{share}"


def _print_json(result: "Result") -> None:
    typer.echo(
        json.dumps(
            {
                "index": result.index,
                "text": result.text,
                "prompt_tokens": result.prompt_tokens,
                "tokens": result.tokens,
                "drafted": result.drafted,
                "accepted": result.accepted,
                "rounds": [_round(step) for step in result.steps],
                "seconds": result.seconds,
                "error": None if result.error is None else str(result.error),
            }
        )
    )


def _round(step: "Step") -> dict[str, Any]:
    fields = asdict(step.round)
    for name in ("draft_logits", "accepted_logits"):
        logits = getattr(step, name)
        if logits is not None:
            fields[name] = logits.tolist()
    return fields
