"""Start the ranks of an MPI job in the worker pods of a group; needs only Python.

mpirun reaches other machines through a remote shell. Here it needs neither a shell nor the
Kubernetes API. A worker pod runs `serve`, which starts Open MPI's daemon once, for a caller that
proves knowledge of the group's key. mpirun in the leader's pod runs `call` as its remote shell.

    agent.py serve                       in a worker pod, as its first process
    agent.py call SECONDS HOST COMMAND   by mpirun; SECONDS is how long a worker may take to answer

`serve` exits with the daemon's status, so that a worker does not outlive its group. On SIGTERM it
still waits for the daemon: the leader drains first, and then ends the daemon itself.

The protocol is lines of text: the worker's nonce (hex), the caller's HMAC-SHA256 over nonce and
request (hex), the request (a JSON list of arguments), and the worker's answer (the exit status).
"""

import contextlib
import hashlib
import hmac
import itertools
import json
import os
import queue
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

KEY = Path(os.environ.get("SPECDEC_GROUP_KEY", "/specdec/key/key"))
PORT = 8003
# The daemons of Open MPI 4 and 5: a request names one of them, without a path.
DAEMONS = ("orted", "prted")
LIMIT = 64 * 1024
KEY_BYTES = 32
PATIENCE = 10.0
# Concurrent connections that have not been authenticated.
CALLERS = 64
_POLL = 0.5


class Lines(Protocol):
    """Both directions of a connection."""

    def readline(self, size: int) -> bytes:
        """The next line, or as much of it as `size` bytes."""

    def write(self, data: bytes) -> Any:
        """Keep bytes to be sent."""

    def flush(self) -> None:
        """Send them."""


class AgentError(Exception):
    """One sentence that ends the program."""


def serve(address: str, port: int) -> int:
    """Wait for the leader, run its daemon, and return the daemon's exit status."""
    signal.signal(signal.SIGTERM, _stop_idle)
    with socket.create_server((address, port), backlog=CALLERS) as server:
        callers = Callers(server)
        argv, connection = callers.first()
        with connection, connection.makefile("rwb") as lines:
            return _run(argv, lines)


class Callers:
    """Connections that have not been authenticated yet, each in a thread of its own.

    A caller has `PATIENCE` seconds in all. Beyond `CALLERS` connections the oldest is closed: the
    leader needs only a moment.
    """

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._open: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        self._accepted: queue.Queue[tuple[list[str], socket.socket]] = queue.Queue()

    def first(self) -> "tuple[list[str], socket.socket]":
        """The first authentic request and its connection; all others are closed."""
        threading.Thread(target=self._accept, daemon=True).start()
        argv, connection = self._next()
        with self._lock:
            _cut(self._server)  # wakes the thread that blocks in accept
            self._server.close()
            for other in self._open:
                _cut(other)
        return argv, connection

    def _next(self) -> "tuple[list[str], socket.socket]":
        while True:
            # A signal may reach another thread and not wake this one. Its handler runs when this
            # thread wakes up by itself.
            with contextlib.suppress(queue.Empty):
                return self._accepted.get(timeout=_POLL)

    def _accept(self) -> None:
        while True:
            try:
                connection, peer = self._server.accept()
            except OSError:
                return  # closed after the first authentic request
            with self._lock:
                self._open[connection] = None
                if len(self._open) > CALLERS:
                    oldest = next(iter(self._open))
                    del self._open[oldest]
                    _cut(oldest)
            threading.Thread(
                target=self._authenticate, args=(connection, peer[0]), daemon=True
            ).start()

    def _authenticate(self, connection: socket.socket, peer: str) -> None:
        timer = threading.Timer(PATIENCE, _cut, (connection,))
        timer.daemon = True
        timer.start()
        try:
            with connection.makefile("rwb") as lines:
                argv = accepted(lines)
        except (AgentError, OSError, ValueError) as error:
            _log(f"refused {peer}: {error}")
            self._remove(connection)
            connection.close()
        else:
            self._remove(connection)
            self._accepted.put((argv, connection))
        finally:
            timer.cancel()

    def _remove(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.pop(connection, None)


def _cut(connection: socket.socket) -> None:
    """Shut down a connection that another thread reads; that thread then closes it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def accepted(lines: Lines) -> list[str]:
    """The arguments of an authentic request.

    Raises:
        AgentError: it is not authentic, or asks for anything but a daemon.
        OSError, ValueError: no request, or one that cannot be read.
    """
    nonce = secrets.token_hex(32)
    _write(lines, nonce)
    mark, body = _read(lines), _read(lines)
    if not hmac.compare_digest(mark.encode(), _mark(nonce, body).encode()):
        raise AgentError("the request is not signed with the group's key")
    argv = json.loads(body)
    if not isinstance(argv, list) or not all(isinstance(word, str) for word in argv):
        raise AgentError("the request is no list of arguments")
    if not argv or argv[0] not in DAEMONS:
        raise AgentError(f"the request asks for {argv[:1]}, and only {DAEMONS} are started")
    return argv


def _run(argv: Sequence[str], lines: Lines) -> int:
    _log(f"the leader has connected: starting {argv[0]}")
    # The daemon passes a signal on to its ranks, which would cut the leader's drain.
    with subprocess.Popen(argv, start_new_session=True) as daemon:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        status = daemon.wait()
    _log(f"{argv[0]} ended with {status}")
    try:
        _write(lines, str(status))
    except OSError:
        _log("the leader has closed the connection")
    return status if status >= 0 else 128 - status


def call(patience: float, host: str, command: str) -> int:
    """Let the worker called `host` run `command`, a daemon's; returns its exit status.

    Raises:
        AgentError: the command is not a daemon's, or the worker did not answer in time.
    """
    argv = daemon_argv(command)
    address = worker(host, os.environ["LWS_LEADER_ADDRESS"])
    with _connected(address, patience) as connection, connection.makefile("rwb") as lines:
        nonce, body = _read(lines), json.dumps(argv)
        _write(lines, _mark(nonce, body))
        _write(lines, body)
        # The daemon runs as long as its server: no limit of time.
        connection.settimeout(None)
        return int(_read(lines))


def daemon_argv(command: str) -> list[str]:
    """The daemon's arguments from a shell command line, without the commands before it.

    Raises:
        AgentError: the command starts no daemon of Open MPI.
    """
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    parts = list(lexer)
    for at, part in enumerate(parts):
        if part.rpartition("/")[2] in DAEMONS:
            own = itertools.takewhile(lambda argument: set(argument) - set("();"), parts[at + 1 :])
            return [part.rpartition("/")[2], *own]
    raise AgentError(f"mpirun starts {parts[:1]}, but only {DAEMONS} are allowed")


def worker(host: str, leader: str) -> str:
    """The address of `worker-<index>` beside a leader: `<leader's pod>-<index>.<its domain>`."""
    index = host.rpartition("-")[2]
    pod, dot, domain = leader.partition(".")
    return f"{pod}-{index}{dot}{domain}"


def _connected(address: str, patience: float) -> socket.socket:
    """A connection to a worker that may not have started yet."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return socket.create_connection((address, PORT), timeout=PATIENCE)
        except OSError as error:
            if time.monotonic() > deadline:
                raise AgentError(f"{address} did not answer in {patience:g} s: {error}") from error
        time.sleep(_POLL)


def _mark(nonce: str, body: str) -> str:
    key = KEY.read_bytes().strip()
    if len(key) < KEY_BYTES:
        # A short key can be guessed: the operator did not generate this Secret's value.
        raise AgentError(f"the group's key in {KEY} has {len(key)} bytes: delete its Secret")
    return hmac.new(key, f"{nonce}\n{body}".encode(), hashlib.sha256).hexdigest()


def _read(lines: Lines) -> str:
    line = lines.readline(LIMIT)
    if not line.endswith(b"\n"):
        raise AgentError("the connection ended, or a line is too long")
    return line[:-1].decode()


def _write(lines: Lines, text: str) -> None:
    lines.write(text.encode() + b"\n")
    lines.flush()


def _stop_idle(*_: Any) -> None:
    """Exit on SIGTERM before a leader connected: there is nothing to wait for."""
    sys.exit(0)


def _log(message: str) -> None:
    print(f"agent: {message}", file=sys.stderr, flush=True)


def main(argv: Sequence[str]) -> int:
    """Run a command line; returns the exit status."""
    try:
        if argv[0] == "call":
            return call(float(argv[1]), argv[2], " ".join(argv[3:]))
        return serve(os.environ.get("SPECDEC_GROUP_ADDRESS", ""), PORT)
    except (AgentError, OSError) as error:
        _log(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
