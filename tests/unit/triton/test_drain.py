"""The preStop hook: whose connections it waits for, and for how long."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from specdec.payload.serving import drain

# Two connections to 8001 (0x1F41), one of them closed by its client; one to 8000 by IPv6; one
# that this machine opened to a port 8001 elsewhere; and the listener of 8001.
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
    """The port of a listener, and the connection of its one client."""
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
        found = counted(ports)
        if found:
            polled.set()
        return found

    monkeypatch.setattr(drain, "connections", seen)
    with connected() as (port, client):

        def wait() -> None:
            drain.leave({port}, time.monotonic() + 60)
            left.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert polled.wait(30)
        assert not left.is_set()
        client.close()
        assert left.wait(30), "nobody is connected any more"
        waiting.join()


@PROC
def test_a_client_that_never_leaves_is_waited_for_no_longer_than_told() -> None:
    with connected() as (port, _):
        begun = time.monotonic()
        drain.leave({port}, begun + 0.5)
        assert time.monotonic() - begun >= 0.5
        assert drain.connections({port}) == 1
