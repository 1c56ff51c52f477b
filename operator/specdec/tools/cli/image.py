"""The commands `specdec image check` and `specdec image program`."""

import json
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from specdec.tools.cli.options import AsObject

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


Backend = Annotated[
    str | None,
    typer.Option(
        help="Backend that uses the image, as spec.runtime.backend; default: the one that builds "
        "engines in it."
    ),
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
    backend: Backend = None,
    packages: Annotated[
        Path | None,
        typer.Option(
            help="Folder with packages that pods search first if the image needs them: "
            "/opt/specdec/packages of the operator's image."
        ),
    ] = None,
    as_json: AsObject = False,
) -> None:
    """Compare the file system of an image with a release of TensorRT-LLM.

    Compares the installed version, the imports of programs and servers, the templates of Triton's
    models, and the flags of all programs that a build of any method runs. Runs nothing of the
    image, and needs no GPU. A build Job makes the same
    comparison, for its own method, before it converts anything.

    Exit status: 0 the image fits, 1 it differs, 2 bad input.
    """
    expected = _expected(backend, version)
    program = resources.files("specdec").joinpath("images", "build", "image_main.py")
    options = ["--json"] if as_json else []
    options += ["--packages", str(packages)] if packages else []
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
    backend: Backend = None,
) -> None:
    """Write the check as one file for a container of the image, which needs only Python.

    The file takes the options of the check and has its exit status.

    Exit status: 0 written, 2 bad input.
    """
    from specdec.backends.tensorrt.image_program import packed

    data = packed(_expected(backend, version))
    part = output.with_name(f"{output.name}.part")
    try:
        part.write_bytes(data)
        part.chmod(0o755)
        part.rename(output)
    except OSError as error:
        _refuse(f"-o {output} cannot be written: {error.strerror}; choose another file")
    typer.echo(f"{len(data)} bytes in {output}")


def _expected(backend: str | None, version: str | None) -> dict[str, Any]:
    """What an image has to hold for the given release, or by default for the newest one."""
    from specdec.backends import images

    own = backend or images.BACKENDS[0]
    if own not in images.BACKENDS:
        _refuse(f"--backend {own} has no image to check: use {' or '.join(images.BACKENDS)}")
    releases = images.releases(own)
    if version is not None and version not in releases:
        _refuse(f"--version {version} is not served: use one of {', '.join(releases)}")
    return images.expectations(own, version or releases[-1])


def _refuse(sentence: str) -> NoReturn:
    typer.echo(f"specdec: {sentence}", err=True)
    raise typer.Exit(BAD_INPUT)
