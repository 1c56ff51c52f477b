"""The argument lists of every launch mode, and the hook that waits until rank 0 has drained."""

import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from cluster.processes import DEADLINE_SECONDS
from specdec.api.methods.draft_target import Placement, Topology
from specdec.images.serving import check_volume, engines
from specdec.servers.bls.serving import TOKEN
from specdec.triton import launch, start
from specdec.triton.launch import server_argv
from specdec.triton.layout import PLAIN, Launch, Layout, Mode, Split
from specdec.triton.probes import programs
from specdec.triton.rank_plan import plan
from support.programs import FOLDER, local

REPOSITORY = "/models/repositories/abc"
LAUNCHES = st.one_of(
    st.just(PLAIN),
    st.builds(Launch, st.just(Mode.LEADER), st.integers(2, 16)),
    st.builds(Launch, st.just(Mode.ORCHESTRATOR), st.integers(3, 17)),
)
# This program ends half a second after SIGTERM, as a server that finishes a request does.
_SERVER = 'trap "sleep 0.5; echo drained; exit 0" TERM; echo up; while :; do sleep 0.05; done'


def contexts(argv: Sequence[str]) -> list[list[str]]:
    """Return the programs that mpirun starts, each without its `-n 1`."""
    # Ranks are not bound to cores: mpirun would bind all threads of a rank to one core.
    head = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    assert argv[:5] == head
    groups: list[list[str]] = [[]]
    for argument in argv[5:]:
        if argument == ":":
            groups.append([])
        else:
            groups[-1].append(argument)
    assert all(context[:2] == ["-n", "1"] for context in groups)
    return [context[2:] for context in groups]


def loads(context: Sequence[str]) -> list[str]:
    return [a.partition("=")[2] for a in context if a.startswith("--load-model=")]


@pytest.mark.parametrize("layout", [Layout(Split()), Layout(Split(), Split())], ids=["a", "a2"])
def test_one_rank_needs_no_mpirun(layout: Layout) -> None:
    (server,) = plan(layout).servers
    argv = launch.command(server.launch, REPOSITORY, exit_timeout_seconds=7)
    assert argv == server_argv(REPOSITORY, exit_timeout_seconds=7)
    assert launch.environment(server.launch) == {}
    stop = launch.pre_stop(server.launch, linger_seconds=5, exit_timeout_seconds=7)
    assert stop[2:] == ["5", "0", "7", "8002", "8000,8001"]


def test_leader_mode_starts_a_server_for_each_rank() -> None:
    (server,) = plan(Layout(Split(2, 2))).servers
    first, *others = contexts(launch.command(server.launch, REPOSITORY))
    assert first == server_argv(REPOSITORY)
    assert len(others) == 3
    for context in others:
        assert loads(context) == ["tensorrt_llm"]
    assert not any(key.startswith("TRTLLM") for key in launch.environment(server.launch))


def test_a_pre_spawned_orchestrator_has_a_rank_for_itself() -> None:
    layout = Layout(Split(4), Split(), placement=Placement.DEDICATED, fast_logits=True)
    (server,) = plan(layout).servers
    first, *others = contexts(launch.command(server.launch, REPOSITORY))
    assert first == server_argv(REPOSITORY)
    assert len(others) == 5
    for context in others:
        assert loads(context) == ["tensorrt_llm", "tensorrt_llm_draft"]
        # The load of its own model blocks a rank, so a second thread must load the other model.
        assert "--model-load-thread-count=2" in context
    environment = launch.environment(server.launch)
    assert environment["TRTLLM_ORCHESTRATOR"] == "1"
    assert environment["TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES"] == "0"


def test_only_the_rank_with_ports_has_tls_and_http_keeps_health() -> None:
    tls = launch.Tls("/tls/tls.crt", "/tls/tls.key")
    (server,) = plan(Layout(Split(2, 2))).servers
    plain, *others = contexts(launch.command(server.launch, REPOSITORY))
    first, *followers = contexts(launch.command(server.launch, REPOSITORY, tls=tls))
    assert followers == others
    assert set(first) - set(plain) == {
        "--grpc-use-ssl=true",
        "--grpc-server-cert=/tls/tls.crt",
        "--grpc-server-key=/tls/tls.key",
        "--http-restricted-api=shared-memory,model-repository,trace,logging,metadata,"
        "model-config,statistics:Closed: to all=no\nvalue",
        # The start of the container replaces the placeholder by the key.
        f"--http-restricted-api=inference:{engines.HEADER}={check_volume.PLACEHOLDER}",
    }
    assert any(a.startswith("--grpc-restricted-protocol=") for a in set(first) & set(plain))


def test_health_alone_on_http_closes_what_tls_closes() -> None:
    (server,) = plan(Layout(Split(2, 2))).servers
    first, *followers = contexts(launch.command(server.launch, REPOSITORY, health_only=True))
    assert followers == contexts(launch.command(server.launch, REPOSITORY))[1:]
    with_tls = launch.command(PLAIN, REPOSITORY, tls=launch.Tls("/tls/tls.crt", "/tls/tls.key"))
    assert set(first) == {a for a in with_tls if "ssl" not in a and "server-" not in a}


def test_http_without_a_key_of_the_probes_is_closed_to_all() -> None:
    (closed,) = (a for a in server_argv(REPOSITORY, health_only=True) if "http-restricted" in a)
    assert "inference" in closed
    assert closed.endswith(":Closed: to all=no\nvalue")


def test_clients_of_an_authority_are_asked_for_their_certificate() -> None:
    open_to_all = launch.Tls("/tls/tls.crt", "/tls/tls.key")
    known = launch.Tls("/tls/tls.crt", "/tls/tls.key", "/clients/ca.crt")
    both = [server_argv(REPOSITORY, tls=tls) for tls in (open_to_all, known)]
    more = ["--grpc-use-ssl-mutual=true", "--grpc-root-cert=/clients/ca.crt"]
    assert both[1] == both[0] + more


def test_two_servers_are_started_apart() -> None:
    layout = Layout(Split(2), Split(), Topology.TWO_SERVERS, Placement.DEDICATED)
    target, draft = (launch.command(s.launch, REPOSITORY) for s in plan(layout).servers)
    assert [loads(context) for context in contexts(target)] == [[], ["tensorrt_llm"]]
    assert draft == server_argv(REPOSITORY)


@given(LAUNCHES)
def test_every_rank_is_a_server_with_its_own_arguments(configured: Launch) -> None:
    argv = launch.command(configured, REPOSITORY)
    if configured.mode is Mode.PLAIN:
        return
    programs = contexts(argv)
    assert len(programs) == configured.world_size
    prefixes = [next(a for a in context if "shm-region" in a) for context in programs]
    assert len(set(prefixes)) == len(programs)
    for rank, context in enumerate(programs):
        assert context[0] == "tritonserver"
        assert f"--model-repository={REPOSITORY}" in context
        assert "--disable-auto-complete-config" in context
        assert len({a.partition("=")[0] for a in context if "load-model" not in a}) == len(
            [a for a in context if "load-model" not in a]
        )
        assert ("--model-control-mode=explicit" in context) == (rank > 0)
        assert ("--allow-http=false" in context) == (rank > 0)


@given(LAUNCHES)
def test_every_rank_has_regions_that_no_client_may_register(configured: Launch) -> None:
    """Clients cannot register these names: Triton refuses the prefix of the Python backend."""
    option = "--backend-config=python,shm-region-prefix-name="
    argv = launch.command(configured, REPOSITORY)
    prefixes = [a.removeprefix(option) for a in argv if a.startswith(option)]
    assert len(set(prefixes)) == configured.world_size
    assert all(p.startswith("triton_python_backend_shm_region_") for p in prefixes)


# No process listens on port 9 of the loopback: these servers have no metrics.
NOWHERE: dict[str, Any] = {"linger_seconds": 0, "metrics_port": 9}


@contextmanager
def metrics(values: list[float]) -> Iterator[int]:
    """Yield the port of a server whose gauge takes these values in turn and keeps the last."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            value = values.pop(0) if len(values) > 1 else values[0]
            self.send_response(200)
            self.end_headers()
            lines = ["# HELP specdec_requests_in_flight Prompts", 'other{model="a"} 7']
            lines.append(f'specdec_requests_in_flight{{model="a",version="1"}} {value}')
            self.wfile.write("\n".join(lines).encode())

        @override
        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield listening.server_port
        finally:
            listening.shutdown()
            thread.join()


def run_hook(port: int, timeout: int) -> int:
    hook = launch.pre_stop(
        PLAIN, linger_seconds=0, exit_timeout_seconds=timeout, metrics_port=port
    )
    return subprocess.run(local(hook), check=False, timeout=DEADLINE_SECONDS).returncode


@pytest.mark.slow
def test_the_hook_waits_until_no_answer_is_in_flight() -> None:
    values = [3.0, 0.0, 1.0, 0.0]
    with metrics(values) as port:
        assert run_hook(port, 30) == 0
    assert values == [0.0], "the hook came back while an answer was in flight"


@pytest.mark.slow
def test_the_hook_gives_up_on_an_answer_that_does_not_end() -> None:
    values = [1.0]
    begun = time.monotonic()
    with metrics(values) as port:
        assert run_hook(port, 1) == 0
    assert time.monotonic() - begun >= 1


@contextmanager
def server(mark: str) -> Iterator[subprocess.Popen[str]]:
    """Run a process with the command line of the server of a rank, which drains on SIGTERM."""
    arguments = ["tritonserver", "-c", _SERVER, mark]
    process = subprocess.Popen(arguments, executable="/bin/sh", stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
def test_the_hook_ends_rank_0_and_waits_until_it_has_drained() -> None:
    # The prefix is unique to this test: the hook must not end other servers on this machine.
    prefix = f"specdec_test_{uuid.uuid4().hex}_"
    configured = Launch(Mode.LEADER, 2)
    marks = [
        next(a for a in context if "shm-region" in a)
        for context in contexts(launch.command(configured, REPOSITORY, shm_region_prefix=prefix))
    ]
    hook = launch.pre_stop(
        configured, **NOWHERE, exit_timeout_seconds=30, shm_region_prefix=prefix
    )
    assert hook[0] == "python3"
    with ExitStack() as stack:
        first, second = (stack.enter_context(server(mark)) for mark in marks)
        done = subprocess.run(local(hook), check=False, timeout=DEADLINE_SECONDS)
        assert done.returncode == 0
        assert first.poll() == 0, "the hook came back before rank 0 had ended"
        assert first.stdout is not None
        assert first.stdout.read() == "drained\n"
        assert second.poll() is None, "only rank 0 gets SIGTERM"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
def test_the_hook_gives_up_when_rank_0_does_not_end() -> None:
    prefix = f"specdec_test_{uuid.uuid4().hex}_"
    hook = launch.pre_stop(
        Launch(Mode.LEADER, 2), **NOWHERE, exit_timeout_seconds=1, shm_region_prefix=prefix
    )
    with server(hook[-1]) as first:
        os.kill(first.pid, signal.SIGSTOP)
        done = subprocess.run(local(hook), check=False, timeout=DEADLINE_SECONDS)
        assert done.returncode == 1
        assert first.poll() is None


def test_a_server_that_has_ended_is_drained() -> None:
    prefix = f"specdec_test_{uuid.uuid4().hex}_"
    hook = launch.pre_stop(
        Launch(Mode.LEADER, 2), **NOWHERE, exit_timeout_seconds=1, shm_region_prefix=prefix
    )
    done = subprocess.run(local(hook), check=False, timeout=DEADLINE_SECONDS)
    assert done.returncode == 0


def test_commands_name_programs_of_the_payload() -> None:
    hook = launch.pre_stop(PLAIN, **NOWHERE, exit_timeout_seconds=1)
    probes = programs(PLAIN, ["tensorrt_llm"], TOKEN, attempt_seconds=8, patience_seconds=60)
    checked = start.checked(["tritonserver"], "/models/manifest.json", 5)
    for argv, name in (
        (hook, "drain.py"),
        (probes.startup, "engines.py"),
        (probes.readiness, "engines.py"),
        (probes.liveness, "alive.py"),
        (checked, "check_volume.py"),
    ):
        assert launch.program_path(name) in argv
        assert launch.program(name) == (FOLDER / name).read_text("utf-8")
