"""The kopf handlers: kopf watches, logs in and serves the probe; everything else is in `runtime`.

`kopf run` imports this module. Event handlers only pass events on to `Runtime`. The operator uses
no finalizers, timers, daemons, indexes or stateful handlers of kopf, so kopf leaves no
trace in objects when the operator is uninstalled.
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
    """Configure kopf and start the runtime.

    An error ends the process with one sentence in the log, and the kubelet restarts it.
    """
    for name in ("kopf.objects", "kopf.activities", "aiohttp.access"):
        # These log a line per event and per probe; our own modules log what they change.
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        own = Settings()
        configure(settings, namespaced=bool(own.namespaces))
        runtime = Runtime(own)
        await runtime.start()
    except (ValidationError, ClusterError, OSError) as error:
        # kopf would log the error with several tracebacks of its own.
        logger.critical("the operator cannot start: %s", one_line(error))
        raise SystemExit(1) from error
    memo.runtime = runtime


def one_line(error: Exception) -> str:
    """A startup error in one sentence; an invalid setting is named by its variable."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        variable = "_".join(("SPECDEC", *map(str, first["loc"]))).upper()
        return f"{variable} is {first['input']!r}: {first['msg']}"
    return " ".join(str(error).split())


def configure(settings: kopf.OperatorSettings, *, namespaced: bool) -> None:
    """Set what differs from kopf's defaults."""
    # kopf removes the finalizer with this name from objects that have no stateful handlers. With
    # the default name, it would remove the finalizers of all other kopf operators.
    settings.persistence.finalizer = f"{GROUP}/unused"
    settings.peering.standalone = True
    settings.posting.enabled = False  # the status writer records events, on transitions only
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
        # The API server filters by this label. Otherwise kopf would hold all such objects of the
        # cluster.
        settings.watching.label_selectors[child] = f"{names.MANAGED_BY}={names.MANAGER}"


@kopf.on.cleanup()
async def stop(memo: kopf.Memo, **_: Any) -> None:
    """Stop the runtime, which lets running reconciles finish."""
    runtime: Runtime | None = memo.get("runtime")
    if runtime is not None:
        await runtime.stop()


@kopf.on.login()
async def login(**kwargs: Any) -> Any:
    """Log in by the pod's service account, or else by a kubeconfig."""
    account = kopf.login_with_service_account(**kwargs)
    if account is None:
        return kopf.login_with_kubeconfig(**kwargs)
    # kopf uses the API server's DNS name. Its address works where policies forbid DNS.
    return dataclasses.replace(account, server=pod_server() or account.server)


@kopf.on.event(GROUP, VERSION, PLURAL)
async def resource_changed(
    body: kopf.Body,
    type: str | None,
    memo: kopf.Memo,
    **_: Any,
) -> None:
    """A SpeculativeModel was listed, created, changed or deleted."""
    memo.runtime.resource_changed(body, deleted=type == "DELETED")


async def child_changed(body: kopf.Body, type: str | None, memo: kopf.Memo, **_: Any) -> None:
    """A child was listed, created, changed or deleted."""
    memo.runtime.child_changed(body, deleted=type == "DELETED")


for _group, _version, _plural in CHILDREN:
    kopf.on.event(_group, _version, _plural)(child_changed)


@kopf.on.probe(id="operator", errors=kopf.ErrorsMode.PERMANENT)
async def healthy(memo: kopf.Memo, **_: Any) -> dict[str, float]:
    """The figures of the health check; if the check raises an exception, the probe returns 500."""
    runtime: Runtime = memo.runtime
    return runtime.check_health()
