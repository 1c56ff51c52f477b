"""The list of `specdec` commands; only the module of the command that runs is imported.

`specdec.tools.cli.main` calls `app`. A test checks that summaries equal the help texts of the
commands.
"""

import inspect
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typing_extensions import override

from specdec import __version__


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        location: `module:attribute` of its function, or of a `Typer` with subcommands.
        summary: the first line of its help, for the list of commands.
        examples: the end of its help.
    """

    location: str
    summary: str
    examples: str = ""

    def load(self, name: str) -> Any:
        """Import the command."""
        module, _, attribute = self.location.partition(":")
        command = getattr(import_module(module), attribute)
        if isinstance(command, typer.Typer):
            return typer.main.get_command(command)
        single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        single.command(name, help=_paragraphs(command), epilog=self.examples)(command)
        return typer.main.get_command(single)


def _paragraphs(command: Any) -> str:
    """The help of a command, a line for each paragraph: the terminal's width wraps it."""
    text = inspect.getdoc(command) or ""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


COMMANDS = {
    "generate": Command(
        "specdec.tools.cli.generate:generate",
        "Generate text with a served model.",
        "Examples: specdec generate --url localhost:8001 --prompt 'def read_lines(path):' "
        "--max-tokens 64 --draft-tokens 4; "
        "specdec generate --url specm/code-assistant -n models --prompt 'def f('; "
        "specdec generate --protocol http --model ensemble --prompt-file - --stop-word 'def '; "
        "specdec generate --tls --ca ca.pem --header 'authorization: Bearer ...' "
        "--prompts-file prompts.jsonl --json",
    ),
    "speculate": Command(
        "specdec.tools.cli.speculate:speculate",
        "Run the draft/target loop in this client, with one server per model or one for both.",
        "Examples: specdec speculate --target localhost:8001 --draft localhost:9001 "
        "--prompt 'def read_lines(path):'; "
        "specdec speculate --prompts-file prompts.jsonl --concurrency 16 --draft-tokens 6 --json",
    ),
    "infer": Command(
        "specdec.tools.cli.infer:infer",
        "Send token ids to an engine directly, without the server's tokenizer.",
        "Examples: specdec infer --tokens 5,17,9 --draft 4,4 --max-tokens 3; "
        "specdec infer --format text --tokenizer ./target --tokens 'def f(' --stream; "
        "specdec infer --tokens-file in.csv --expect-file out.csv --threshold 0.9",
    ),
    "verify": Command(
        "specdec.tools.cli.verify:verify",
        "Compare outputs with those of the target alone.",
        "Examples: specdec verify --url localhost:8001; "
        "specdec verify --url specm/code-assistant -n models; "
        "specdec verify --dataset prompts.jsonl --limit 20 --against bls --json; "
        "specdec verify --client-loop --url localhost:8001 --draft-url localhost:9001",
    ),
    "dataset": Command("specdec.tools.cli.dataset:app", "Convert files of prompts."),
    "bench": Command(
        "specdec.tools.cli.bench:bench",
        "Measure a served model with and without speculation.",
        "Examples: specdec bench --url specm/code-assistant --concurrency 1,4,16; "
        "specdec bench --prompts-file prompts.jsonl --draft-tokens 2,4,6,8 --html report.html; "
        "specdec bench --requests 100 --metrics localhost:8002 --json",
    ),
    "image": Command(
        "specdec.tools.cli.image:app", "Compare a server image with its release of TensorRT-LLM."
    ),
    "status": Command(
        "specdec.tools.cli.status:status",
        "Show the stages of a resource, its Jobs and pods, and its measurements.",
        "Examples: specdec status; specdec status code-assistant -n models; "
        "specdec status code-assistant --context staging --json",
    ),
    "top": Command(
        "specdec.tools.cli.top:top",
        "Show what every serving pod does now, from its metrics.",
        "Examples: specdec top; specdec top code-assistant --interval 10; "
        "specdec top -A --once --json",
    ),
    "logs": Command(
        "specdec.tools.cli.logs:logs",
        "Show the logs of all Jobs and servers of a resource.",
        "Examples: specdec logs code-assistant -f; "
        "specdec logs code-assistant -n models --component engine --tail 100",
    ),
    "check": Command(
        "specdec.tools.cli.check:check",
        "Check whether a cluster can run the operator and its resources.",
        "Examples: specdec check; specdec check -n models --json",
    ),
    "report": Command(
        "specdec.tools.cli.report:report",
        "Write an archive about a resource, to send with an issue.",
        "Examples: specdec report code-assistant; "
        "specdec report code-assistant -n models --output report.tar.gz",
    ),
    "suspend": Command(
        "specdec.tools.cli.actions:suspend",
        "Delete the pods of a resource; engines, checkpoints and the claim stay.",
        "Example: specdec suspend code-assistant -n models",
    ),
    "resume": Command(
        "specdec.tools.cli.actions:resume",
        "Serve a suspended resource again.",
        "Example: specdec resume code-assistant -n models",
    ),
    "rerun": Command(
        "specdec.tools.cli.actions:rerun",
        "Measure a resource again: its verification, or its benchmark.",
        "Examples: specdec rerun code-assistant; specdec rerun code-assistant --benchmark",
    ),
    "prune": Command(
        "specdec.tools.cli.prune:prune",
        "List the checkpoints, engines and repositories of a claim that no resource uses.",
        "Examples: specdec prune code-assistant-models; "
        "specdec prune code-assistant-models --delete --older-than 7d -n models",
    ),
    "certify": Command(
        "specdec.tools.cli.certify:certify",
        "Serve a matrix of small models on a cluster, and report what passed.",
        "Examples: specdec certify; specdec certify --list; "
        "specdec certify --backend Reference -n lab --prompts 4; "
        "specdec certify --backend TensorRT --heads Eagle=yuhuili/EAGLE-Vicuna-7B-v1.3 "
        "--heads Medusa=FasterDecoding/medusa-vicuna-7b-v1.3; "
        "specdec certify --only baseline,ngram --output first --keep",
    ),
    "plan": Command(
        "specdec.tools.cli.plan:plan",
        "Show what the operator would do with a resource, without a cluster.",
        "Examples: specdec plan -f model.yaml; "
        "specdec plan -f model.yaml --checkpoint target=./large --checkpoint draft=./small "
        "--json; "
        "specdec plan -f changed.yaml --diff model.yaml",
    ),
    "catalog": Command(
        "specdec.tools.cli.catalog:catalog",
        "List published drafts and heads by target.",
        "Examples: specdec catalog; specdec catalog meta-llama/Llama-3.3-70B-Instruct; "
        "specdec catalog qwen3 --json",
    ),
    "init": Command(
        "specdec.tools.cli.init:init",
        "Write a first manifest for a target, with its best published draft or heads.",
        "Examples: specdec init meta-llama/Llama-3.3-70B-Instruct > model.yaml; "
        "specdec init Qwen/Qwen3-8B --backend PyTorch --product NVIDIA-L40S",
    ),
    "migrate": Command(
        "specdec.tools.cli.migrate:migrate",
        "Print the resources of another backend that serve the same models.",
        "Examples: specdec migrate -f model.yaml --to PyTorch > migrated.yaml; "
        "kubectl get specm code-assistant -o yaml | specdec migrate -f - --to PyTorch",
    ),
    "render": Command(
        "specdec.tools.cli.render:render",
        "Write every manifest and every file of the model repository for review.",
        "Example: specdec render -f model.yaml -o rendered",
    ),
}


class _LazyGroup(TyperGroup):
    """Lists commands by their summaries, and imports a command when it or its help is run."""

    @override
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in COMMANDS:
            self.commands[args[0]] = COMMANDS[args[0]].load(args[0])
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_LazyGroup,
    help="Speculative decoding services on Triton.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"specdec {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Speculative decoding services on Triton."""


def _placeholder() -> None:
    """Represents a command in the list until it is imported."""


for _name, _command in COMMANDS.items():
    app.command(_name, help=_command.summary)(_placeholder)
