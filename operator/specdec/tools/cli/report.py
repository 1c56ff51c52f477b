"""The command `specdec report`; it imports the Kubernetes client only when it runs."""

import asyncio
import os
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specdec.client.errors import BadRequestError
from specdec.tools.cli import options as opt
from specdec.tools.cli.cluster_options import (
    KubeContext,
    Namespace,
    OperatorNamespace,
    ResourceName,
    check_name,
)

if TYPE_CHECKING:
    from specdec.tools.inspect.report.packing import Material


def report(
    context: typer.Context,
    name: ResourceName,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Archive; default: specdec-report-NAME-TIME.tar.gz."),
    ] = None,
    namespace: Namespace = None,
    kube_context: KubeContext = None,
    operator_namespace: OperatorNamespace = "specdec-system",
) -> None:
    """Write an archive about a resource, to send with an issue.

    Contains its objects, status, events, logs and metrics, and the result of `specdec check`.
    Reads no Secret. Removes what has the form of a credential; this is best effort, so read the
    files before you send them. Lists what could not be read.

    Exit status: 0 written, 1 the API server refuses, 2 bad input or no such resource, 3 the API
    server cannot be reached.
    """
    with opt.report_errors():
        check_name("NAME", name)
        check_name("--namespace", namespace)
        check_name("--operator-namespace", operator_namespace)
        at = datetime.now(UTC)
        path = output or Path(f"specdec-report-{name}-{at:%Y%m%dT%H%M%SZ}.tar.gz")
        _check_output(path)
        material = asyncio.run(_material(context.params))
        _write_report(material, at, path)


def _check_output(path: Path) -> None:
    """Raise BadRequestError before anything is read, if the archive could not be written."""
    if path.is_dir():
        raise BadRequestError(f"--output {path} is a folder; name a file")
    if not path.parent.is_dir():
        raise BadRequestError(
            f"--output {path} cannot be written: there is no folder {path.parent}; create it"
        )


async def _material(options: Mapping[str, Any]) -> "Material":
    from specdec.tools.dry_run.admission.definition import is_carried
    from specdec.tools.inspect.report.reading import ReportSource, read
    from specdec.tools.inspect.session import logged_in

    async with logged_in(options["kube_context"]) as session:
        namespace = options["namespace"] or session.namespace
        place = options["operator_namespace"]
        source = ReportSource(session.cluster, namespace, place, is_carried)
        return await read(source, options["name"])


def _write_report(material: "Material", at: datetime, path: Path) -> None:
    from dataclasses import replace

    from specdec.tools.inspect.archive import pack
    from specdec.tools.inspect.redaction import secret_values
    from specdec.tools.inspect.report.packing import NOT_INCLUDED, files
    from specdec.tools.terminal import plain

    created = {"createdAt": at.strftime("%Y-%m-%dT%H:%M:%SZ")}
    dated = replace(material, about={**created, **material.about})
    content = files(dated, secret_values(os.environ))
    _write(path, pack(content, path.name.removesuffix(".tar.gz")))
    typer.echo(f"{plain(str(path))}: {len(content)} files; read them before you send them")
    missing = content[NOT_INCLUDED].decode().splitlines()
    if material.snapshot.notes:
        typer.echo(f"specdec: {len(missing)} parts are not included: {NOT_INCLUDED}", err=True)


def _write(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, and name it when it is complete."""
    try:
        handle, scratch = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(scratch).replace(path)
        finally:
            Path(scratch).unlink(missing_ok=True)
    except OSError as error:
        raise BadRequestError(
            f"--output {path} cannot be written ({error.strerror}); name another file"
        ) from error
