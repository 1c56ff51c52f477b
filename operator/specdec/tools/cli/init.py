"""The command `specdec init`; it imports the catalogue only when it runs."""

from typing import Annotated

import typer

from specdec.tools.cli.resource_options import report_errors


def init(
    target: Annotated[str, typer.Argument(help="The target's repository of the hub, owner/name.")],
    backend: Annotated[str, typer.Option(help="VLLM, PyTorch or TensorRT.")] = "VLLM",
    product: Annotated[
        str, typer.Option(help="The nodes' label nvidia.com/gpu.product.")
    ] = "NVIDIA-H100-80GB-HBM3",
) -> None:
    """Write a first manifest for a target, with its best published draft or heads.

    It has the first pair of `specdec catalog TARGET` that the backend serves, or method NGram,
    which needs no draft. Comments have the source of each value, and the other pairs. Read it,
    then check it with `specdec plan`.

    Exit status: 0 written, 2 bad input.
    """
    with report_errors():
        from specdec.tools.dry_run import first_manifest

        typer.echo(first_manifest.manifest(target, backend, product), nl=False)
