"""The commands of `specdec`. A start pays for the one command that is asked for."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typing_extensions import override


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        home: `module:attribute` of its function, or of the `Typer` of its own commands.
        summary: what the list of commands says: the first line of its help.
        examples: what its help ends with.
    """

    home: str
    summary: str
    examples: str = ""

    def load(self, name: str) -> Any:
        """The command as the library runs it."""
        module, _, attribute = self.home.partition(":")
        found = getattr(import_module(module), attribute)
        if isinstance(found, typer.Typer):
            return typer.main.get_command(found)
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        alone.command(name, epilog=self.examples)(found)
        return typer.main.get_command(alone)


COMMANDS = {
    "generate": Command(
        "specdec.cli.generate:generate",
        "Ask a served model to continue prompts.",
        "Examples: specdec generate --url localhost:8001 --prompt 'def read_lines(path):' "
        "--max-tokens 64 --draft-tokens 4; "
        "specdec generate --protocol http --model ensemble --prompt-file - --stop-word 'def '; "
        "specdec generate --tls --ca ca.pem --header 'authorization: Bearer ...' "
        "--prompts-file prompts.jsonl --json",
    ),
    "speculate": Command(
        "specdec.cli.speculate:speculate",
        "Run the draft/target loop here, against a server for each model or one for both.",
        "Examples: specdec speculate --target localhost:8001 --draft localhost:9001 "
        "--prompt 'def read_lines(path):'; "
        "specdec speculate --prompts-file prompts.jsonl --concurrency 16 --draft-tokens 6 --json",
    ),
    "infer": Command(
        "specdec.cli.infer:infer",
        "Ask an engine alone, with token ids and no tokenizer on the server.",
        "Examples: specdec infer --tokens 5,17,9 --draft 4,4 --max-tokens 3; "
        "specdec infer --format text --tokenizer ./target --tokens 'def f(' --stream; "
        "specdec infer --tokens-file in.csv --expect-file out.csv --threshold 0.9",
    ),
    "verify": Command(
        "specdec.cli.verify:verify",
        "Compare answers with those of the target alone, token by token.",
        "Examples: specdec verify --url localhost:8001; "
        "specdec verify --dataset prompts.jsonl --limit 20 --against bls --json; "
        "specdec verify --client-loop --url localhost:8001 --draft-url localhost:9001",
    ),
    "dataset": Command("specdec.cli.dataset:app", "Files of prompts."),
    "bench": Command(
        "specdec.cli.bench:bench",
        "Measure a served model with and without speculation.",
        "Examples: specdec bench --url localhost:8001 --concurrency 1,4,16; "
        "specdec bench --prompts-file prompts.jsonl --draft-tokens 2,4,6,8 --html report.html; "
        "specdec bench --requests 100 --metrics localhost:8002 --json",
    ),
    "status": Command(
        "specdec.cli.status:status",
        "Say where every stage of a resource stands, what works on it and what was measured.",
        "Examples: specdec status; specdec status code-assistant -n models; "
        "specdec status code-assistant --context staging --json",
    ),
    "top": Command(
        "specdec.cli.top:top",
        "Show what every serving pod does now, by its own metrics.",
        "Examples: specdec top; specdec top code-assistant --interval 10; "
        "specdec top -A --once --json",
    ),
    "plan": Command(
        "specdec.cli.plan:plan",
        "Say what the operator would do with a resource, without a cluster.",
        "Examples: specdec plan -f model.yaml; "
        "specdec plan -f model.yaml --checkpoint target=./large --checkpoint draft=./small "
        "--json; "
        "specdec plan -f changed.yaml --diff model.yaml",
    ),
    "render": Command(
        "specdec.cli.render:render",
        "Write every manifest and every file of the model repository, for review.",
        "Example: specdec render -f model.yaml -o rendered",
    ),
}


class _Lazy(TyperGroup):
    """Lists commands by their summaries, and loads the one that is run or asked for its help."""

    @override
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in COMMANDS:
            self.commands[args[0]] = COMMANDS[args[0]].load(args[0])
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Lazy,
    help="Speculative decoding services on Triton.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _listed() -> None:
    """Stands for a command in the list."""


for _name, _command in COMMANDS.items():
    app.command(_name, help=_command.summary)(_listed)
