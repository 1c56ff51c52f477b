"""The agent that starts a worker's MPI daemon: the requests that it accepts and refuses."""

import contextlib
import hmac
import importlib.util
import json
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from cluster.processes import DEADLINE_SECONDS, until
from specdec.triton import launch

AGENT = Path(launch.__file__).parents[1] / "images" / "serving" / "agent.py"
LEADER = "big-group-0.big-group.models"


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("specdec_agent", AGENT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "key").write_text("the key of the group, long enough\n")
    monkeypatch.setattr(module, "KEY", tmp_path / "key")
    return module


@contextlib.contextmanager
def lines(agent: ModuleType) -> Iterator[tuple[socket.socket, list[object]]]:
    """Yield the caller's socket, and a list that receives the worker's result for the request."""
    worker, caller = socket.socketpair()
    heard: list[object] = []

    def hear() -> None:
        with worker, worker.makefile("rwb") as stream:
            try:
                heard.append(agent.accepted(stream))
            except (agent.AgentError, OSError, ValueError) as error:
                heard.append(error)

    thread = threading.Thread(target=hear)
    thread.start()
    try:
        yield caller, heard
    finally:
        caller.close()
        thread.join(DEADLINE_SECONDS)


def ask(agent: ModuleType, body: str, mark: str | None = None) -> object:
    with lines(agent) as (caller, heard), caller.makefile("rwb") as stream:
        nonce = stream.readline().decode().strip()
        signed = agent._mark(nonce, body) if mark is None else mark
        stream.write(f"{signed}\n{body}\n".encode())
        stream.flush()
    return heard[0]


def test_a_signed_daemon_is_started_as_it_is(agent: ModuleType) -> None:
    body = '["orted", "-mca", "ess", "env; rm -rf /"]'
    assert ask(agent, body) == ["orted", "-mca", "ess", "env; rm -rf /"]


@pytest.mark.parametrize("key", ["", "\n", "short"])
def test_a_key_that_anybody_could_guess_opens_nothing(agent: ModuleType, key: str) -> None:
    body = '["orted"]'
    signed = hmac.new(key.strip().encode(), b"", "sha256").hexdigest()
    agent.KEY.write_text(key)
    refusal = ask(agent, body, signed)
    assert isinstance(refusal, agent.AgentError)
    assert "delete its Secret" in str(refusal)


@pytest.mark.parametrize(
    "body",
    [
        '["sh", "-c", "id"]',
        '["/tmp/orted"]',
        "[]",
        '"orted"',
        '["orted", 1]',
        '{"orted": 1}',
        "nonsense",
        "x" * 100_000,
    ],
)
def test_nothing_but_a_daemon_is_started(agent: ModuleType, body: str) -> None:
    assert isinstance(ask(agent, body), Exception)


@pytest.mark.parametrize("mark", ["", "0" * 64, "Ω"])
def test_an_unsigned_request_is_refused(agent: ModuleType, mark: str) -> None:
    assert isinstance(ask(agent, '["orted"]', mark), agent.AgentError)


def test_a_request_heard_before_is_refused_under_another_nonce(agent: ModuleType) -> None:
    assert isinstance(ask(agent, '["orted"]', agent._mark("0" * 64, '["orted"]')), Exception)


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        (' orted -mca ess "env" -mca uri "1.0;tcp://10.0.0.1:5"', ["orted", "-mca", "ess", "env"]),
        ("PATH=/opt/x/bin:$PATH ; export PATH ; /opt/x/bin/orted -x", ["orted", "-x"]),
        ("test ! -r ./.profile || . ./.profile; ( prted --a b )", ["prted", "--a", "b"]),
    ],
)
def test_a_shell_line_of_mpirun_becomes_arguments(
    agent: ModuleType, command: str, argv: list[str]
) -> None:
    assert agent.daemon_argv(command)[: len(argv)] == argv
    assert ")" not in agent.daemon_argv(command)


def test_a_line_without_a_daemon_is_refused(agent: ModuleType) -> None:
    with pytest.raises(agent.AgentError, match="but only"):
        agent.daemon_argv("rm -rf /")


def test_a_worker_is_addressed_beside_its_leader(agent: ModuleType) -> None:
    assert agent.worker("worker-2", LEADER) == "big-group-0-2.big-group.models"


@contextlib.contextmanager
def serving(agent: ModuleType) -> Iterator[tuple[int, list[tuple[list[str], socket.socket]]]]:
    """Yield the port of a worker, and a list that receives the request that it accepts."""
    taken: list[tuple[list[str], socket.socket]] = []
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        callers = agent.Callers(server)
        thread = threading.Thread(target=lambda: taken.append(callers.first()), daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1], taken
        finally:
            callers._accepted.put(([], client))
            thread.join(DEADLINE_SECONDS)
            for _, connection in taken:
                connection.close()
            until(lambda: not callers._open, lambda: "a connection stays open")


def lead(agent: ModuleType, port: int) -> list[str]:
    """Send the signed request of a leader and return its arguments."""
    argv = ["orted", "-mca"]
    with (
        socket.create_connection(("127.0.0.1", port), DEADLINE_SECONDS) as caller,
        caller.makefile("rwb") as own,
    ):
        body = json.dumps(argv)
        own.write(f"{agent._mark(own.readline().decode().strip(), body)}\n{body}\n".encode())
        own.flush()
    return argv


def drip(caller: socket.socket) -> bool:
    """Send one more byte and return whether the worker still keeps the connection open."""
    try:
        caller.send(b"x")
        return not select.select([caller], [], [], 0)[0] or bool(caller.recv(4096))
    except OSError:
        return False


def test_a_leader_is_heard_beside_callers_who_send_a_byte_now_and_then(
    agent: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No caller loses its connection because of its time.
    monkeypatch.setattr(agent, "PATIENCE", 2 * DEADLINE_SECONDS)
    with serving(agent) as (port, taken), contextlib.ExitStack() as stack:
        slow = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), DEADLINE_SECONDS))
            for _ in range(2 * agent.CALLERS)
        ]
        for caller in slow:
            drip(caller)
        argv = lead(agent, port)
        until(lambda: bool(taken), lambda: "the leader is not heard")
        assert taken[0][0] == argv
        # The worker closes the connections of all other callers.
        until(lambda: sum(map(drip, slow)) == 0, lambda: "a caller stays connected")


@pytest.mark.slow
def test_a_caller_has_a_limited_time_in_all(
    agent: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "PATIENCE", 1.0)
    with serving(agent) as (port, taken):
        with socket.create_connection(("127.0.0.1", port), DEADLINE_SECONDS) as caller:
            # No pause between two bytes exceeds the limit; only the total time does.
            until(lambda: not drip(caller), lambda: "the caller stays connected")
        # A slow machine may need more than a second for the leader.
        monkeypatch.setattr(agent, "PATIENCE", 2 * DEADLINE_SECONDS)
        lead(agent, port)
        until(lambda: bool(taken), lambda: "the leader is not heard")
