"""`specdec speculate`. What speaks to a server is loaded when the command runs."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specdec.cli import options as a

if TYPE_CHECKING:
    from specdec.client.speculate import Result, Step


def speculate(
    context: typer.Context,
    prompt: a.Prompts = None,
    prompt_file: a.PromptFile = None,
    prompts_file: a.PromptsFile = None,
    target: Annotated[str, typer.Option(help="gRPC of the target, host:port.")] = "localhost:8001",
    draft: Annotated[
        str | None, typer.Option(help="gRPC of the draft, host:port; default: the target's.")
    ] = None,
    target_model: Annotated[str, typer.Option(help="Target's engine.")] = "tensorrt_llm",
    draft_model: Annotated[
        str | None, typer.Option(help="Its engine; without --draft tensorrt_llm_draft.")
    ] = None,
    max_tokens: a.MaxTokens = 64,
    draft_tokens: Annotated[int, typer.Option(help="Draft tokens a round; 0: off.")] = 4,
    concurrency: Annotated[int, typer.Option(help="Prompts at a time.")] = 16,
    use_draft_logits: Annotated[
        bool, typer.Option("--use-draft-logits", help="Accept by logits, not by tokens.")
    ] = False,
    draft_logits: Annotated[
        bool, typer.Option("--draft-logits", help="Give the draft's logits of every round.")
    ] = False,
    accepted_logits: Annotated[
        bool, typer.Option("--accepted-logits", help="Give the target's logits of every round.")
    ] = False,
    check_vocabulary: Annotated[
        bool, typer.Option(help="Refuse prompts that the servers tokenize differently.")
    ] = True,
    temperature: a.Temperature = None,
    top_k: a.TopK = None,
    top_p: a.TopP = None,
    seed: a.Seed = None,
    min_tokens: a.MinTokens = None,
    repetition_penalty: a.RepetitionPenalty = None,
    presence_penalty: a.PresencePenalty = None,
    frequency_penalty: a.FrequencyPenalty = None,
    end_id: a.EndId = None,
    pad_id: a.PadId = None,
    stop_words: a.StopWords = None,
    bad_words: a.BadWords = None,
    bias: a.Bias = None,
    timeout: a.Timeout = 120.0,
    tls: a.Tls = False,
    root: a.Root = None,
    key: a.Key = None,
    chain: a.Chain = None,
    header: a.Headers = None,
    as_json: a.AsJson = False,
) -> None:
    """Run the draft/target loop here, against a server for each model or one for both.

    Answers come as they are ready; what failed is said and the others go on.

    Exit status: 0 answered, 1 refused by a server, 2 bad input, 3 nobody answers.
    """
    with a.explained():
        _run(context.params)


def _run(given: dict[str, Any]) -> None:
    import asyncio

    from specdec.client.speculate import Options
    from specdec.client.speculate import speculate as run

    prompts = a.prompts(given)
    draft = given["draft"]
    asked = run(
        prompts,
        Options(**a.known(Options, given)),
        a.connection(given, given["target"]),
        a.connection(given, draft) if draft else None,
        concurrency=given["concurrency"],
        tell=_tell_json if given["as_json"] else _tell,
    )
    results = asyncio.run(asked)
    if len(results) > 1 and not given["as_json"]:
        typer.echo(_sum(results), err=True)
    statuses = [result.error.exit_status for result in results if result.error]
    if statuses:
        raise typer.Exit(max(statuses))


def _tell(result: "Result") -> None:
    if result.tokens:
        a.say(result.text)
    for number, step in enumerate(result.steps, 1):
        for name in ("draft_logits", "accepted_logits"):
            logits = getattr(step, name)
            if logits is not None and logits.size:
                best = [f"{row.argmax()} ({row.max():.2f})" for row in logits]
                typer.echo(f"round {number} {name}, the highest: {' '.join(best)}", err=True)
    if result.error:
        typer.echo(f"specdec: prompt {result.index + 1}: {result.error}", err=True)
    else:
        typer.echo(_sum([result]), err=True)


def _sum(results: "list[Result]") -> str:
    """One line about what speculation did, in plain words."""
    count = sum(len(result.tokens) for result in results)
    rounds = sum(len(result.steps) for result in results)
    drafted = sum(result.drafted for result in results)
    accepted = sum(result.accepted for result in results)
    share = f" ({100 * accepted / drafted:.0f} %)" if drafted else ""
    return f"{count} tokens in {rounds} rounds; {drafted} drafted, {accepted} accepted{share}"


def _tell_json(result: "Result") -> None:
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
    told = asdict(step.round)
    for name in ("draft_logits", "accepted_logits"):
        logits = getattr(step, name)
        if logits is not None:
            told[name] = logits.tolist()
    return told
