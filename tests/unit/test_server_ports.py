"""Servers of the tests get ports that no other program takes, and leave no process behind."""

import http.client
import socket
import sys
from pathlib import Path

import pytest

from cluster.processes import until
from support.ports import reserved
from support.triton_server import Server, ServerError, command_of

# Listens on the HTTP port of its arguments, and answers in another protocol.
FOREIGN = """
import socket, sys
port = int(next(a for a in sys.argv if a.startswith("--http-port=")).partition("=")[2])
with socket.create_server(("127.0.0.1", port)) as listening:
    while True:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"\\x00\\x00\\x12\\x04\\x00\\n")
"""

# Crashes after it has started a model.
CRASHING = """
import os, subprocess, sys
model = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print("model", model.pid, flush=True)
os.abort()
"""


def bind(port: int) -> None:
    """Bind a port as a program does that does not share it."""
    with socket.socket() as program:
        program.bind(("127.0.0.1", port))


def test_reserved_port_is_kept_from_others_before_and_after_its_server_runs() -> None:
    with reserved(2) as ports:
        assert len(set(ports)) == 2
        for port in ports:
            with pytest.raises(OSError, match="in use"):
                bind(port)
            with (
                socket.create_server(("127.0.0.1", port)) as server,
                socket.create_connection(("127.0.0.1", port)) as client,
            ):
                connection, _ = server.accept()
                # The side that closes first keeps its port for a minute; here that is the client.
                client.close()
                assert connection.recv(1) == b""
                connection.close()
            with pytest.raises(OSError, match="in use"):
                bind(port)


def test_reserved_port_is_free_again_at_the_end() -> None:
    with reserved(1) as (port,):
        pass
    bind(port)


def test_server_is_killed_when_something_else_answers_on_its_port(tmp_path: Path) -> None:
    program = tmp_path / "foreign.py"
    program.write_text(FOREIGN)
    server = Server(program, {}, tmp_path, within=[sys.executable])
    with pytest.raises(http.client.BadStatusLine), server:
        pass
    assert server.processes() == []


def test_models_of_a_crashed_server_are_killed(tmp_path: Path) -> None:
    program = tmp_path / "crashing.py"
    program.write_text(CRASHING)
    server = Server(program, {}, tmp_path, within=[sys.executable])
    with pytest.raises(ServerError, match="the server ended with -6"), server:
        pass
    model = int(server.log().split()[1])
    until(lambda: not command_of(model), lambda: f"process {model} still runs")
