"""The commands of `specdec`, gathered. None of them pays at start for what another one needs."""

import typer

from specdec.bench.command import bench
from specdec.client.command import generate
from specdec.client.infer_command import infer
from specdec.client.speculate_command import speculate
from specdec.offline.command import plan, render

app = typer.Typer(
    help="Speculative decoding services on Triton.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command(
    epilog="Examples: specdec generate --url localhost:8001 --prompt 'def read_lines(path):' "
    "--max-tokens 64 --draft-tokens 4; "
    "specdec generate --protocol http --model ensemble --prompt-file - --stop-word 'def '; "
    "specdec generate --tls --ca ca.pem --header 'authorization: Bearer ...' "
    "--prompts-file prompts.jsonl --json"
)(generate)
app.command(
    epilog="Examples: specdec speculate --target localhost:8001 --draft localhost:9001 "
    "--prompt 'def read_lines(path):'; "
    "specdec speculate --prompts-file prompts.jsonl --concurrency 16 --draft-tokens 6 --json"
)(speculate)
app.command(
    epilog="Examples: specdec infer --tokens 5,17,9 --draft 4,4 --max-tokens 3; "
    "specdec infer --format text --tokenizer ./target --tokens 'def f(' --stream; "
    "specdec infer --tokens-file in.csv --expect-file out.csv --threshold 0.9"
)(infer)
app.command(
    epilog="Examples: specdec bench --url localhost:8001 --concurrency 1,4,16; "
    "specdec bench --prompts-file prompts.jsonl --draft-tokens 2,4,6,8 --html report.html; "
    "specdec bench --requests 100 --metrics localhost:8002 --json"
)(bench)
app.command(
    epilog="Examples: specdec plan -f model.yaml; "
    "specdec plan -f model.yaml --checkpoint target=./large --checkpoint draft=./small --json; "
    "specdec plan -f changed.yaml --diff model.yaml"
)(plan)
app.command(epilog="Example: specdec render -f model.yaml -o rendered")(render)
