"""The edge to kopf, which watches, logs in and answers probes; it decides nothing.

Every event only adds a key to the queue. The operator uses no finalizer, timer, daemon, index or
state-keeping handler of kopf, so that nothing of ours stays on any object when it is uninstalled.
"""

import dataclasses
import logging
from typing import Any

import kopf
from pydantic import ValidationError

from specdec.api import names
from specdec.api.kinds import PLURALS, WATCHED, triple
from specdec.api.model import GROUP, PLURAL, VERSION
from specdec.cluster import ClusterError
from specdec.cluster.login import pod_server
from specdec.controller.runtime import Runtime
from specdec.controller.settings import Settings

logger = logging.getLogger(__name__)

CHILDREN = tuple(triple(version, PLURALS[version, kind]) for version, kind in WATCHED)


@kopf.on.startup(errors=kopf.ErrorsMode.PERMANENT)
async def start(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    """Set kopf to watch only what is ours, then start the queue.

    What is wrong at the start ends the process with one sentence; the kubelet tries again.
    """
    for noisy in ("kopf.objects", "kopf.activities", "aiohttp.access"):
        # A line per event and per probe; what they did is told where it is done.
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        own = Settings()
        configure(settings, namespaced=bool(own.namespaces))
        runtime = Runtime(own)
        await runtime.start()
    except (ValidationError, ClusterError, OSError) as error:
        # Not an error for kopf: it would add the tracebacks of four frames of its own.
        logger.critical("the operator cannot start: %s", one_line(error))
        raise SystemExit(1) from error
    memo.runtime = runtime


def one_line(error: Exception) -> str:
    """An error at the start in one sentence, with the variable that caused it if one did."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        variable = "_".join(("SPECDEC", *map(str, first["loc"]))).upper()
        return f"{variable} is {first['input']!r}: {first['msg']}"
    return " ".join(str(error).split())


def configure(settings: kopf.OperatorSettings, *, namespaced: bool) -> None:
    """Settings that differ from kopf's defaults, each for a reason."""
    # kopf strips its finalizer from objects of an event-only operator: under its default name it
    # would take those of every other kopf operator.
    settings.persistence.finalizer = f"{GROUP}/unused"
    settings.peering.standalone = True
    settings.posting.enabled = False  # events are ours, recorded on transitions only
    settings.scanning.disabled = namespaced  # a namespaced role may not list CRDs or namespaces
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    settings.watching.chunk_size = 500
    settings.networking.request_timeout = 60
    settings.networking.connect_timeout = 10
    settings.queueing.worker_limit = 100
    settings.process.ultimate_exiting_timeout = 25  # below the pod's grace period of 30 s
    for child in CHILDREN:
        # Server-side: without it every such object of the whole cluster is sent and held.
        settings.watching.label_selectors[child] = f"{names.MANAGED_BY}={names.MANAGER}"


@kopf.on.cleanup()
async def stop(memo: kopf.Memo, **_: Any) -> None:
    """Let running reconciles end."""
    runtime: Runtime | None = memo.get("runtime")
    if runtime is not None:
        await runtime.stop()


@kopf.on.login()
async def login(**kwargs: Any) -> Any:
    """As the pod's service account, else by kubeconfig; without loading another client."""
    account = kopf.login_with_service_account(**kwargs)
    if account is None:
        return kopf.login_with_kubeconfig(**kwargs)
    # Not by the name that kopf assumes: the operator then works where it may not ask a DNS server.
    return dataclasses.replace(account, server=pod_server() or account.server)


@kopf.on.event(GROUP, VERSION, PLURAL)
async def resource_changed(
    body: kopf.Body,
    type: str | None,
    memo: kopf.Memo,
    **_: Any,
) -> None:
    """A SpeculativeModel appeared, changed or went."""
    memo.runtime.resource_changed(body, deleted=type == "DELETED")


async def child_changed(body: kopf.Body, type: str | None, memo: kopf.Memo, **_: Any) -> None:
    """A child appeared, changed or went."""
    memo.runtime.child_changed(body, deleted=type == "DELETED")


for _group, _version, _plural in CHILDREN:
    kopf.on.event(_group, _version, _plural)(child_changed)


@kopf.on.probe(id="operator", errors=kopf.ErrorsMode.PERMANENT)
async def healthy(memo: kopf.Memo, **_: Any) -> dict[str, float]:
    """Figures of the queue and the resync; an exception makes the probe answer 500."""
    runtime: Runtime = memo.runtime
    return runtime.check()
