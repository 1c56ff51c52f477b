"""The command `specdec certify`; it imports the Kubernetes client only when it runs."""

import asyncio
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from specdec.client.errors import BadRequestError
from specdec.tools.cli import certify_options as given
from specdec.tools.cli import options as opt
from specdec.tools.cli.cluster_options import KubeContext, Namespace, OperatorNamespace

if TYPE_CHECKING:
    from specdec.tools.certify.facts import Facts, Gpus
    from specdec.tools.certify.folder import Folder
    from specdec.tools.certify.matrix import Entry
    from specdec.tools.certify.request import CertifyRequest
    from specdec.tools.certify.run import RunPlan

_FAILED = 1
_INTERRUPTED = 130
# Minutes that a resource may be blocked by one reason, such as a crash or a lack of GPUs.
_BLOCKED_MINUTES = 10.0
Json = dict[str, Any]


def certify(
    context: typer.Context,
    backend: given.Backend = "PyTorch",
    namespace: Namespace = None,
    kube_context: KubeContext = None,
    output: given.Output = Path("specdec-certify"),
    only: given.Only = None,
    heads: given.Heads = None,
    heads_target: given.HeadsTarget = None,
    target: given.Target = None,
    draft: given.Draft = None,
    token_secret: given.TokenSecret = None,
    version: given.Version = None,
    image: given.Image = None,
    gpu_product: given.GpuProduct = None,
    gpus: given.Gpus = None,
    claim: given.Claim = None,
    storage_size: given.StorageSize = None,
    storage_class: given.StorageClass = None,
    access_mode: given.ClaimAccessMode = given.AccessMode.ONCE,
    prompts: given.Prompts = 16,
    output_tokens: given.OutputTokens = 64,
    timeout: given.TimeoutMinutes = 120.0,
    retry: given.Retry = False,
    keep: given.Keep = False,
    operator_namespace: OperatorNamespace = "specdec-system",
    show_list: given.ShowList = False,
) -> None:
    """Serve a matrix of small models on a cluster, and report what passed.

    Tries every method that the cluster and your checkpoints allow, one after another. Verifies
    each, sends load to it, and keeps status, logs and metrics. Writes one HTML page and one
    archive. An interrupted run continues with the same command. Creates resources in one namespace
    with the rights of your kubeconfig, and deletes them. Removes what has the form of a
    credential; this is best effort, so read the files before you send them.

    Exit status: 0 all tried entries passed, 1 an entry failed or the API server refuses, 2 bad
    input, 3 the API server cannot be reached, 130 interrupted.
    """
    with opt.report_errors():
        given.check(context.params)
        failed = _run_interruptibly(context.params)
    if failed:
        raise typer.Exit(_FAILED)


def _run_interruptibly(params: Mapping[str, Any]) -> bool:
    """Run until all entries are tried; Ctrl-C ends the command with a message and status 130."""
    try:
        return asyncio.run(_certify(params))
    except KeyboardInterrupt:
        typer.echo(
            "specdec: interrupted; the same command continues, from the state in "
            f"{params['output']}",
            err=True,
        )
        raise typer.Exit(_INTERRUPTED) from None


async def _certify(params: Mapping[str, Any]) -> bool:
    """Run, and write archive and page; returns whether an entry failed."""
    from specdec.tools.certify import facts
    from specdec.tools.certify.live import Live
    from specdec.tools.certify.matrix import matrix, require_any, selected
    from specdec.tools.certify.run import run
    from specdec.tools.cli.certify_progress import Progress, show
    from specdec.tools.inspect.session import logged_in

    request, only = _request(params), selected(params["only"])
    async with logged_in(params["kube_context"]) as session:
        live = Live(session.cluster, params["namespace"] or session.namespace)
        await live.require_kind()
        nodes = await live.nodes()
        known = None if nodes is None else facts.facts(nodes)
        gpus = facts.select(request, known)
        entries = matrix(request, gpus, only)
        if params["show_list"]:
            show(entries)
            return False
        require_any(entries)
        await live.require_claims(request.claims)
        with _folder(params["output"]) as folder:
            document = _document(folder, request, live.namespace, known, gpus, entries)
            plan = _plan(params, document["id"], request, entries)
            with Progress(sum(not entry.not_tried for entry in entries)) as reporter:
                await run(live, folder, plan, reporter)
            folder.write_run({**document, "finishedAt": plan.now()})
            return _finish(folder)


def _request(params: Mapping[str, Any]) -> "CertifyRequest":
    from specdec.api.matrix import Backend
    from specdec.tools.certify.request import HEADS_TARGET, CertifyRequest, heads

    backends = {str(item).lower(): item for item in Backend}
    backend = backends.get(params["backend"].lower())
    if backend is None:
        raise BadRequestError(
            f"--backend is {params['backend']!r}; write one of {', '.join(map(str, Backend))}"
        )
    same = ("version", "image", "gpu_product", "gpus", "token_secret", "claim")
    return CertifyRequest(
        backend=backend,
        **{name: params[name] for name in same},
        target=params["target"] or "",
        draft=params["draft"] or "",
        heads=heads(params["heads"] or ()),
        heads_target=params["heads_target"] or HEADS_TARGET,
        storage_size=params["storage_size"],
        storage_class=params["storage_class"],
        access_mode=params["access_mode"].value,
        prompts=params["prompts"],
        output_tokens=params["output_tokens"],
    )


def _plan(
    params: Mapping[str, Any], run: str, request: "CertifyRequest", entries: "tuple[Entry, ...]"
) -> "RunPlan":
    from specdec.tools.certify.progress import EntryLimits
    from specdec.tools.certify.run import RunPlan

    blocked = min(_BLOCKED_MINUTES, params["timeout"])
    return RunPlan(
        id=run,
        request=request,
        entries=entries,
        limits=EntryLimits(60 * params["timeout"], 60 * blocked),
        keep=params["keep"],
        retry=params["retry"],
        operator_namespace=params["operator_namespace"],
    )


@contextmanager
def _folder(path: Path) -> "Iterator[Folder]":
    from specdec.tools.certify.folder import Folder
    from specdec.tools.inspect.redaction import Redactor

    folder = Folder(path, Redactor.of_environment(os.environ))
    with folder.locked():
        yield folder


def _document(
    folder: "Folder",
    request: "CertifyRequest",
    namespace: str,
    known: "Facts | None",
    gpus: "Gpus | None",
    entries: "tuple[Entry, ...]",
) -> Json:
    """The document of a new run, or of the earlier run that continues.

    Raises:
        BadRequestError: the folder has a run with other options.
    """
    from specdec import __version__

    asked = {**request.as_json(), "namespace": namespace}
    earlier = folder.run()
    for name, value in asked.items():
        if earlier is not None and earlier["request"].get(name) != value:
            raise BadRequestError(
                f"--output {folder.path} has a run with {name} {earlier['request'].get(name)}, "
                f"not {value}; give the same options, or another folder"
            )
    started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    document = {
        "id": earlier["id"] if earlier else secrets.token_hex(4),
        "startedAt": earlier["startedAt"] if earlier else started,
        "version": __version__,
        "request": asked,
        "kubernetes": known.kubernetes if known else (),
        "gpus": asdict(gpus) if gpus else None,
        "entries": [
            {
                "name": entry.name,
                "title": entry.title,
                "method": entry.method,
                "notTried": entry.not_tried,
                "baseline": entry.baseline,
            }
            for entry in entries
        ],
    }
    folder.write_run(document)
    return document


def _finish(folder: "Folder") -> bool:
    """Write page and archive, print where they are; returns whether an entry failed."""
    from specdec.tools.certify import page, report
    from specdec.tools.certify.folder import PAGE
    from specdec.tools.inspect import archive
    from specdec.tools.terminal import plain

    run = folder.run() or {}
    states = {item["name"]: folder.entry(item["name"]) or {} for item in run["entries"]}
    document = report.document(run, {name: state for name, state in states.items() if state})
    folder.write_file("", PAGE, page.as_html(document, folder.read_text))
    packed = folder.write_archive(archive.pack(folder.files(), f"specdec-certify-{run['id']}"))
    typer.echo(f"{document['headline']}")
    typer.echo(f"page     {plain(str(folder.path / PAGE))}")
    typer.echo(f"archive  {plain(str(packed))}")
    return bool(document["counts"]["failed"])
