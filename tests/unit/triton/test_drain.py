"""The preStop hook: which connections and requests it waits for, and for how long."""

import math
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.processes import DEADLINE_SECONDS, until
from specdec.images.serving import drain
from unit.triton import fake_models

# The tables contain: the listener of 8001 (0x1F41); two connections to it, one closed by its
# client; a connection to port 8001 of another machine; and an IPv6 connection to 8000.
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000 10001 0 1 1 0 100 0 0
   1: 0501D50A:1F41 0101D50A:C350 01 00000000:00000000 00:00000000 00000000 10001 0 2 1 0 20 4 30
   2: 0501D50A:1F41 0101D50A:C351 08 00000000:00000000 00:00000000 00000000 10001 0 3 1 0 20 4 30
   3: 0501D50A:C352 0101D50A:1F41 01 00000000:00000000 00:00000000 00000000 10001 0 4 1 0 20 4 30
"""
TCP6 = """\
  sl  local_address                         remote_address                        st
   0: 0000000000000000FFFF00000501D50A:1F40 0000000000000000FFFF00000101D50A:C353 01 00000000:0
"""
PROC = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs /proc")


def test_connections_of_clients_are_counted(tmp_path: Path) -> None:
    (tmp_path / "tcp").write_text(TCP)
    assert drain.connections({8000, 8001}, tmp_path) == 1, "a kernel without IPv6"
    (tmp_path / "tcp6").write_text(TCP6)
    assert drain.connections({8000, 8001}, tmp_path) == 2
    assert drain.connections({8000}, tmp_path) == 1
    assert drain.connections({8002}, tmp_path) == 0


@contextmanager
def connected() -> Iterator[tuple[int, socket.socket]]:
    """Yield the port of a listener, and the connection of its only client."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            server, _ = listening.accept()
            with server:
                yield port, client


@PROC
def test_the_server_serves_on_until_its_clients_have_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drain, "_QUIET", 0.1)
    polled, left = threading.Event(), threading.Event()
    counted = drain.connections

    def seen(ports: set[int]) -> int:
        count = counted(ports)
        if count:
            polled.set()
        return count

    monkeypatch.setattr(drain, "connections", seen)
    with connected() as (port, client):

        def wait() -> None:
            drain.await_disconnected({port}, time.monotonic() + 60)
            left.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert polled.wait(DEADLINE_SECONDS)
        assert not left.is_set()
        client.close()
        assert left.wait(DEADLINE_SECONDS), "no client is connected any more"
        waiting.join()


@PROC
def test_the_wait_for_a_client_that_never_leaves_is_bounded() -> None:
    with connected() as (port, _):
        begun = time.monotonic()
        drain.await_disconnected({port}, begun + 0.5)
        assert time.monotonic() - begun >= 0.5
        assert drain.connections({port}) == 1


IDLE = """\
# HELP specdec_requests_in_flight Prompts being decoded, and requests waiting or being encoded
specdec_requests_in_flight{model="tensorrt_llm_bls",version="1"} 0
specdec_engine_requests{model="tensorrt_llm",version="1"} 0
nv_inference_pending_request_count{model="preprocessing",version="1"} 0
nv_inference_request_success{model="ensemble",version="1"} 7
"""
STALE = IDLE + 'nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active"} 2\n'


@pytest.mark.parametrize(
    "work",
    [
        'specdec_requests_in_flight{model="tensorrt_llm_bls",version="1"}',
        'specdec_engine_requests{model="tensorrt_llm",version="1"}',
        'nv_inference_pending_request_count{model="preprocessing",version="1"}',
    ],
)
def test_work_of_every_kind_is_counted(work: str) -> None:
    assert drain.in_flight(IDLE) == 0
    assert drain.in_flight(IDLE.replace(f"{work} 0", f"{work} 3")) == 3


def serve(
    monkeypatch: pytest.MonkeyPatch, pages: Sequence[str], patience: float = math.inf
) -> Iterator[float]:
    """Let `await_idle` read these pages, the last page repeatedly; yield the seconds it takes."""
    clock = [0.0]
    left = list(pages)

    def page(_: int) -> str:
        return left.pop(0) if len(left) > 1 else left[0]

    monkeypatch.setattr(drain, "_page", page)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.append(clock.pop() + seconds))
    drain.await_idle(8002, 120.0, patience)
    yield clock[0]


def test_a_server_at_rest_is_left_after_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    (seconds,) = serve(monkeypatch, [IDLE])
    assert seconds == pytest.approx(0.6)


def test_work_that_goes_on_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook waits even if only a counter of Triton shows the work."""
    pages = [IDLE.replace("} 7", f"}} {number}") for number in range(250)]
    (seconds,) = serve(monkeypatch, pages)
    assert seconds == pytest.approx(250 * 0.2 + 0.4)


def test_work_that_never_ends_is_waited_for_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (seconds,) = serve(monkeypatch, [IDLE.replace("} 0", "} 1")])
    assert seconds == pytest.approx(120.0)


def test_work_that_a_dead_process_never_ends_is_waited_for_only_while_a_counter_grows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Calls to a dead process count as in flight for ever; the rest may go on without it."""
    step = 'specdec_engine_steps_total{model="tensorrt_llm",version="1"} %d\n'
    pages = [IDLE.replace("} 0", "} 1") + step % number for number in range(50)]
    (seconds,) = serve(monkeypatch, pages, patience=10.0)
    assert seconds == pytest.approx(49 * 0.2 + 10.0, abs=0.3)


def test_an_engine_between_two_steps_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle engine's last report stays on the page, so the hook bounds its wait for the next."""
    step = 'nv_trt_llm_general_metrics{general_type="iteration_counter"} %d\n'
    pages = [STALE + step % (number // 25) for number in range(100)]
    (seconds,) = serve(monkeypatch, pages)
    assert seconds == pytest.approx(75 * 0.2 + 10.0, abs=0.3)


def test_a_server_that_has_ended_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def page(_: int) -> str:
        raise ConnectionRefusedError

    monkeypatch.setattr(drain, "_page", page)
    drain.await_idle(8002, time.monotonic() + 3600, math.inf)


@PROC
def test_without_metrics_the_end_of_the_connections_is_the_end_of_the_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drain, "_QUIET", 0.1)
    monkeypatch.setattr(drain, "_POLL", 0.01)

    def page(port: int) -> str:
        raise AssertionError(f"metrics of port {port} are read")

    monkeypatch.setattr(drain, "_page", page)
    with connected() as (port, client):
        started = time.monotonic()
        assert drain.drain(0, 0.5, 0, 0, {port})
        assert time.monotonic() - started >= 0.5, "a client is connected"
        client.close()


@PROC
def test_hook_of_a_server_with_a_dead_model_waits_only_for_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clients only get errors until they connect anew, to another pod."""
    waits: list[str] = []
    monkeypatch.setattr(time, "sleep", lambda _: waits.append("lingers"))
    monkeypatch.setattr(drain, "await_disconnected", lambda *_: waits.append("clients"))
    monkeypatch.setattr(drain, "await_idle", lambda *args: waits.append(f"work {args[2]:g}"))
    port = 59321
    with fake_models.server(tmp_path, port) as process:
        drain.drain(5.0, 40.0, 30.0, 8002, {port, 59322})
        assert waits == ["lingers", "clients", "work inf"]
        os.kill(process, signal.SIGKILL)
        until(lambda: drain.refuses({port}), lambda: "the process is not dead")
        waits.clear()
        drain.drain(5.0, 40.0, 30.0, 8002, {port, 59322})
        assert waits == ["work 10"]
