"""Options of `specdec certify`, and the checks of their values."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from specdec.client.errors import BadRequestError
from specdec.tools.cli.cluster_options import check_name
from specdec.tools.cli.completion import backends, entries, head_methods

_LONGEST_MINUTES = 7 * 24 * 60


class AccessMode(StrEnum):
    """The access modes of the claim."""

    ONCE = "ReadWriteOnce"
    MANY = "ReadWriteMany"


Backend = Annotated[
    str,
    typer.Option(
        help="PyTorch, VLLM or TensorRT on GPUs, or Reference on CPUs.", autocompletion=backends
    ),
]
Output = Annotated[
    Path, typer.Option("-o", "--output", help="Folder of the state, the archive and the page.")
]
Only = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,NAME,...", help="Entries to try; default: all.", autocompletion=entries
    ),
]
Heads = Annotated[
    list[str] | None,
    typer.Option(
        metavar="METHOD=SOURCE",
        help="Checkpoint of heads for Eagle3, Eagle, Medusa, ReDrafter or DFlash, or of a draft "
        "for PARD; repeatable. SOURCE is OWNER/REPO of the Hugging Face hub, or pvc:CLAIM/PATH.",
        autocompletion=head_methods,
    ),
]
HeadsTarget = Annotated[
    str | None,
    typer.Option(metavar="SOURCE", help="Target of the heads; default lmsys/vicuna-7b-v1.3."),
]
Target = Annotated[
    str | None,
    typer.Option(
        metavar="SOURCE",
        help="Default Qwen/Qwen2.5-1.5B-Instruct; with Reference pvc:reference-pair/target.",
    ),
]
Draft = Annotated[
    str | None, typer.Option(metavar="SOURCE", help="Default Qwen/Qwen2.5-0.5B-Instruct.")
]
TokenSecret = Annotated[
    str | None,
    typer.Option(metavar="SECRET", help="Secret with a token of the hub under the key token."),
]
Version = Annotated[str | None, typer.Option(help="Sets spec.runtime.version.")]
Image = Annotated[str | None, typer.Option(help="Sets spec.runtime.image.")]
GpuProduct = Annotated[
    str | None, typer.Option(help="Node label nvidia.com/gpu.product, if there are several.")
]
Gpus = Annotated[int | None, typer.Option(help="GPUs of a node, if you may not list nodes.")]
Claim = Annotated[str | None, typer.Option(help="Existing claim for checkpoints and engines.")]
StorageSize = Annotated[
    str | None, typer.Option(help="Of the created claim; default 60Gi, with heads 160Gi.")
]
StorageClass = Annotated[str | None, typer.Option(help="Of the created claim.")]
ClaimAccessMode = Annotated[
    AccessMode, typer.Option(help="Of the claim; ReadWriteMany lets pods spread over nodes.")
]
Prompts = Annotated[int, typer.Option(help="Prompts of each measurement.")]
OutputTokens = Annotated[int, typer.Option(help="Maximum tokens of an answer.")]
TimeoutMinutes = Annotated[float, typer.Option(help="Minutes for each entry.")]
Retry = Annotated[bool, typer.Option("--retry", help="Run failed entries again.")]
Keep = Annotated[
    bool,
    typer.Option("--keep", help="Keep the claim, and the resources with spec.suspend true."),
]
ShowList = Annotated[
    bool, typer.Option("--list", help="Show what would be tried, and create nothing.")
]


def check(options: Mapping[str, Any]) -> None:
    """Raise BadRequestError for an invalid name or timeout."""
    for name in ("namespace", "operator_namespace", "claim", "token_secret"):
        check_name(f"--{name.replace('_', '-')}", options[name])
    timeout = options["timeout"]
    if not 0 < timeout <= _LONGEST_MINUTES:
        raise BadRequestError(
            f"--timeout is {timeout:g}; set it above 0 and to at most {_LONGEST_MINUTES} minutes"
        )
