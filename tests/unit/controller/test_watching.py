"""The watches start again whenever a fault ends them, and everything else goes on."""

import asyncio
import contextlib
import json
import random
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import kopf
import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from cluster.processes import DEADLINE_SECONDS
from specdec.controller import handlers
from specdec.controller.queue import Backoff
from specdec.controller.runtime import Runtime
from specdec.controller.settings import Settings
from specdec.controller.watching import STEADY, keep_watching
from support.fake_api import kubeconfig
from support.simulated_clock import run

Json = dict[str, Any]
STEADY_BACKOFF = Backoff(first=1.0, ceiling=8.0, jitter=0.0)


def restarts() -> float:
    return REGISTRY.get_sample_value("specdec_watch_restarts_total") or 0


def starts_of(watch: Callable[[int], Awaitable[None]], count: int) -> list[float]:
    """Return the times of the first `count` starts of watches."""
    starts: list[float] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()

        async def once() -> None:
            starts.append(loop.time())
            if len(starts) == count:
                raise asyncio.CancelledError
            await watch(len(starts))

        with pytest.raises(asyncio.CancelledError):
            await keep_watching(once, STEADY_BACKOFF, random.Random(1))

    run(scenario())
    return [round(at - starts[0], 3) for at in starts]


def test_watches_that_end_at_once_start_again_with_growing_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = restarts()

    async def watch(_: int) -> None:
        raise RuntimeError("a 410\nof the server", {"code": 410})

    assert starts_of(watch, 6) == [0, 1, 3, 7, 15, 23]
    assert restarts() - before == 5
    assert caplog.messages[0] == "the watches start again in 1.0 s: a 410 of the server"


def test_watches_that_ran_for_long_start_again_soon() -> None:
    async def watch(number: int) -> None:
        await asyncio.sleep(2 * STEADY if number == 3 else 0)

    assert starts_of(watch, 5) == [0, 1, 3, 3 + 2 * STEADY + 1, 3 + 2 * STEADY + 3]


class ApiServer:
    """Serves one SpeculativeModel, and answers requests with a fault for a while.

    Attributes:
        fault: returns the response to a request, or None to serve it.
        tokens: the tokens that were used.
    """

    def __init__(self) -> None:
        self.fault: Callable[[web.Request], web.Response | None] = lambda _: None
        self.tokens: set[str] = set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.tokens.add(request.headers.get("Authorization", ""))
        if (response := self.fault(request)) is not None:
            return response
        if request.query.get("watch"):
            await asyncio.Event().wait()
        return web.json_response(_served(request.path))


def _served(path: str) -> Json:
    if path == "/api":
        return {"versions": ["v1"]}
    if path == "/api/v1":
        kind = {"name": "namespaces", "kind": "Namespace", "namespaced": False}
        names = {"singularName": "namespace", "shortNames": [], "categories": []}
        return {"resources": [{**kind, **names, "verbs": ["list", "watch"]}]}
    if path == "/apis":
        group = {"version": "v1alpha1", "groupVersion": "specdec.dev/v1alpha1"}
        return {
            "groups": [{"name": "specdec.dev", "versions": [group], "preferredVersion": group}]
        }
    if path == "/apis/specdec.dev/v1alpha1":
        kind = {"name": "speculativemodels", "kind": "SpeculativeModel", "namespaced": True}
        names = {"singularName": "speculativemodel", "shortNames": [], "categories": []}
        return {"resources": [{**kind, **names, "verbs": ["list", "watch", "patch"]}]}
    if path.endswith("/speculativemodels"):
        meta = {"name": "pair", "namespace": "demo", "uid": "u", "resourceVersion": "1"}
        return {"items": [{"metadata": meta}], "metadata": {"resourceVersion": "1"}}
    return {"resources": []}


def status(code: int) -> web.Response:
    return web.json_response({"kind": "Status", "message": f"code {code}"}, status=code)


def error_event(code: int) -> web.Response:
    line = json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": code}})
    return web.Response(text=f"{line}\n", content_type="application/json")


def impatient(settings: Any, *, namespaced: bool) -> None:
    settings.scanning.disabled = namespaced
    settings.networking.error_backoffs = (0.01, 0.01)


@pytest.mark.parametrize(
    ("response", "every"),
    [
        (lambda: status(401), True),
        (lambda: status(410), False),
        (lambda: status(503), False),
        (lambda: error_event(500), False),
        (lambda: error_event(429), False),
    ],
    ids=["401", "410", "503", "ERROR-500", "ERROR-429"],
)
async def test_a_fault_of_the_api_server_ends_kopf_and_a_new_run_lists_all(
    response: Callable[[], web.Response],
    every: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`kopf run` ended the process at each of these; a new run logs in with the present token."""
    server, listed = ApiServer(), asyncio.Event()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    file = tmp_path / "kubeconfig"
    address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(file, address, token="old")))
    runtime = Runtime(Settings(namespaces=("demo",)))
    threads: set[int] = set()

    def changed(body: Json, deleted: bool = False) -> None:
        threads.add(threading.get_ident())
        listed.set()

    monkeypatch.setattr(runtime, "resource_changed", changed)
    # kopf retries for a minute before an answer of 503 ends it.
    monkeypatch.setattr(handlers, "configure", impatient)
    server.fault = lambda r: response() if every or r.query.get("watch") else None
    try:
        async with asyncio.timeout(60):
            with pytest.raises(Exception, match=r"code|valid credentials"):
                await handlers.watch(runtime, ("demo",))
            listed.clear()
            server.fault = lambda _: None
            kubeconfig(file, address, token="new")
            task = asyncio.create_task(handlers.watch(runtime, ("demo",)))
            await listed.wait()
            task.cancel()
            await asyncio.wait([task])
    finally:
        await runner.cleanup()
    assert task.cancelled()
    assert threads == {threading.get_ident()}
    assert server.tokens >= {"Bearer old", "Bearer new"}


async def test_a_task_of_kopf_that_does_not_end_keeps_no_new_run_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After the first failed watch, others could wait forever for credentials of a new login."""
    released = threading.Event()

    async def fail() -> None:
        raise RuntimeError("code 410")

    async def wait_for_credentials() -> None:
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    async def spawn(**_: Any) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(work()) for work in (wait_for_credentials, fail)]

    monkeypatch.setattr(kopf, "spawn_tasks", spawn)
    monkeypatch.setattr(handlers, "STOP_SECONDS", 0.05)
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            with pytest.raises(RuntimeError, match="code 410"):
                await handlers.watch(Runtime(Settings()), ())
    finally:
        released.set()
