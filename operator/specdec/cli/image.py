"""The commands `specdec image check` and `specdec image program`."""

import json
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Annotated, NoReturn

import typer

BAD_INPUT = 2

app = typer.Typer(
    help="Compare a server image with its release of TensorRT-LLM.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Version = Annotated[
    str | None,
    typer.Option(help="Release of TensorRT-LLM, as spec.runtime.version; default: the newest."),
]


@app.callback()
def image() -> None:
    """Compare a server image with its release of TensorRT-LLM."""


@app.command(
    epilog="Examples: specdec image check ./rootfs --version 1.2.1; specdec image check / --json"
)
def check(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="The image's file system: a folder that it was extracted to, or / inside a "
            "container of the image.",
        ),
    ],
    version: Version = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Compare the file system of an image with a release of TensorRT-LLM.

    Compares the installed version, the templates of Triton's models, and the flags of all programs
    that a build of any method runs. Runs nothing of the image. A build Job makes the same
    comparison, for its own method, before it converts anything.

    Exit status: 0 the image fits, 1 it differs, 2 bad input.
    """
    from specdec.backends.tensorrt.image import expectations

    expected = expectations(_served(version))
    program = resources.files("specdec").joinpath("payload", "build", "image_main.py")
    options = ["--json"] if as_json else []
    done = subprocess.run(
        [sys.executable, str(program), "--expected", "-", *options, "--", str(folder)],
        input=json.dumps(expected),
        text=True,
        check=False,
    )
    raise typer.Exit(done.returncode)


@app.command(
    epilog="Example: specdec image program --version 1.2.1 -o check.pyz; "
    "docker run --rm -v $PWD/check.pyz:/check.pyz IMAGE python3 /check.pyz"
)
def program(
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write.")],
    version: Version = None,
) -> None:
    """Write the check as one file for a container of the image, which needs only Python.

    The file takes the options of the check and has its exit status.

    Exit status: 0 written, 2 bad input.
    """
    from specdec.backends.tensorrt.image_program import packed

    data = packed(_served(version))
    part = output.with_name(f"{output.name}.part")
    try:
        part.write_bytes(data)
        part.chmod(0o755)
        part.rename(output)
    except OSError as error:
        _refuse(f"-o {output} cannot be written: {error.strerror}; choose another file")
    typer.echo(f"{len(data)} bytes in {output}")


def _served(version: str | None) -> str:
    """The given release, or by default the newest one."""
    from specdec.backends.tensorrt.image import releases

    if version is not None and version not in releases():
        _refuse(f"--version {version} is not served: use one of {', '.join(releases())}")
    return version or releases()[-1]


def _refuse(sentence: str) -> NoReturn:
    typer.echo(f"specdec: {sentence}", err=True)
    raise typer.Exit(BAD_INPUT)
