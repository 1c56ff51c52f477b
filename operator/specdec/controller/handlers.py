"""The watch of resources: kopf logs in and watches, and its handler passes events to `Runtime`.

`watch` runs kopf in a thread with an event loop of its own. kopf ends at faults that it cannot
handle, such as a token that is refused for some seconds, and then cancels all tasks of its loop.
`watching` starts it again; queue, Lease and metrics stay in the main thread.
The operator uses no finalizers, timers, daemons, indexes or stateful handlers of kopf, so kopf
leaves no trace in objects when the operator is uninstalled.
"""

import asyncio
import contextlib
import dataclasses
import logging
import threading
from collections.abc import Collection, Sequence
from typing import Any

import kopf

from specdec.api.model import GROUP, PLURAL, VERSION
from specdec.cluster.login import pod_server
from specdec.controller.runtime import Runtime

LOG_FORMATS = tuple(str(item.name).lower() for item in kopf.LogFormat)
# How long kopf's tasks may take to end, after a fault and at the end of the process. They write
# nothing, so those that take longer are given up.
STOP_SECONDS = 5.0


def configure_logging(log_format: str, **options: Any) -> None:
    """Log to stderr in a format of `LOG_FORMATS`; the options are those of `kopf.configure`."""
    kopf.configure(log_format=kopf.LogFormat[log_format.upper()], **options)
    for name in ("kopf.objects", "kopf.activities"):
        # These log a line per event and per login; our own modules log what they change.
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in ("kopf._core.reactor.running", "kopf._core.reactor.orchestration"):
        # They log the error that ends a watch, each with a traceback; `watching` logs it once.
        logging.getLogger(name).setLevel(logging.CRITICAL)


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
    # kopf would kill the process some seconds after its own end.
    settings.process.ultimate_exiting_timeout = None


async def watch(runtime: Runtime, namespaces: Sequence[str]) -> None:
    """Log in, list and watch all kinds until a fault ends kopf; cancel it to stop the watches.

    Raises:
        Exception: the error that ended kopf.
    """
    life = _Life(runtime, namespaces)
    threading.Thread(target=life.run, name="watches", daemon=True).start()
    try:
        # Not the future itself, which a cancellation would cancel.
        await asyncio.wait([life.ended])
    except asyncio.CancelledError:
        life.stop()
        await asyncio.wait([life.ended], timeout=STOP_SECONDS)
        raise
    if (error := life.ended.result()) is not None:
        raise error


class _Life:
    """One run of kopf, with new credentials and new lists of all objects.

    `ended` is a future of the main thread's loop: the error that ended kopf, or None.
    """

    def __init__(self, runtime: Runtime, namespaces: Sequence[str]) -> None:
        self._runtime, self._namespaces = runtime, tuple(namespaces)
        self._main = asyncio.get_running_loop()
        self.ended: asyncio.Future[BaseException | None] = self._main.create_future()
        self._lock = threading.Lock()
        self._stopped = False
        self._task: asyncio.Task[Any] | None = None

    def run(self) -> None:
        """Run kopf in this thread until it ends."""
        error: BaseException | None = None
        # Not `asyncio.run`, which would report the end only after all tasks have ended.
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(self._operate())
        except BaseException as failure:  # noqa: BLE001 - the main thread raises it
            error = failure
        _hand_over(self._main, self.ended.set_result, error)
        # Python would log errors of tasks that are dropped before their end. So this thread waits
        # for those that are given up, without limit; it does not keep the process from exiting.
        loop.run_until_complete(_end(asyncio.all_tasks(loop), None))
        loop.close()

    def stop(self) -> None:
        """End kopf, from the main thread."""
        with self._lock:
            self._stopped = True
            if self._task is not None:
                _hand_over(self._task.get_loop(), self._task.cancel)

    async def _operate(self) -> None:
        with self._lock:
            if self._stopped:
                return
            self._task = asyncio.current_task()
        settings = kopf.OperatorSettings()
        configure(settings, namespaced=bool(self._namespaces))
        tasks = await kopf.spawn_tasks(
            settings=settings,
            memo=kopf.Memo(runtime=self._runtime, main=self._main),
            standalone=True,
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
        )
        # Not `kopf.operator`: after the first task has failed, it waits for the others without
        # limit, and some can wait for credentials that no task provides any more.
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _end(tasks, STOP_SECONDS)
        for task in tasks:
            if task.done() and not task.cancelled():
                task.result()


async def _end(tasks: Collection[asyncio.Task[Any]], seconds: float | None) -> None:
    """Cancel tasks, and wait until they have ended, or for at most this time."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=seconds)


def _hand_over(loop: asyncio.AbstractEventLoop, call: Any, *arguments: Any) -> None:
    """Call a function in the thread of a loop, unless that loop has ended."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *arguments)


# A file that cannot be read for a moment must not cost the minute of kopf's default.
@kopf.on.login(backoff=5)
async def login(**kwargs: Any) -> Any:
    """Log in by the pod's service account, or else by a kubeconfig."""
    account = kopf.login_with_service_account(**kwargs)
    if account is None:
        return kopf.login_with_kubeconfig(**kwargs)
    # kopf uses the API server's DNS name. Its address works where policies forbid DNS.
    return dataclasses.replace(account, server=pod_server() or account.server)


@kopf.on.event(GROUP, VERSION, PLURAL)
async def resource_changed(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """A SpeculativeModel was listed, created, changed or deleted."""
    deleted = event["type"] == "DELETED"
    _hand_over(memo.main, memo.runtime.resource_changed, event["object"], deleted)
