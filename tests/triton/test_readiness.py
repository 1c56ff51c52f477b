"""A pod is ready only when both engines give tokens: a server that reports ready is not enough.

The engines of these servers run behind simulated ranks. If an orchestrator pre-spawned the ranks,
Triton reports ready before the engines are loaded, and still reports ready after a rank has died.
With leaders, or an orchestrator that spawns its ranks, it reports ready only after the load.
"""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.processes import DEADLINE_SECONDS, until
from specdec.images.serving import alive
from specdec.triton import launch, start
from specdec.triton.layout import PLAIN
from specdec.triton.repository import RepositoryPlan, render
from support.openai_endpoint import MODEL, OpenAIEndpoint
from support.programs import local
from support.shipped_pair import PAIR
from support.triton_client import ask, text
from support.triton_server import Server
from triton.conftest import Serve
from triton.probed_pod import (
    DRAFT,
    ENGINES,
    FAILURES,
    PATIENCE,
    TARGET,
    Pod,
    pod,
    simulated,
)


@pytest.fixture
def prespawned(serve: Serve, draft_target_plan: RepositoryPlan, tmp_path: Path) -> Iterator[Pod]:
    """Yield a pod with pre-spawned ranks that still load."""
    plan = simulated(draft_target_plan, ready_early=True)
    with serve(plan) as server:
        yield pod(server, tmp_path)


def test_startup_needs_a_token_of_both_engines(prespawned: Pod) -> None:
    assert prespawned.reports_itself_ready()
    assert prespawned.probe("startup").startswith(f"{TARGET} gave no token within")
    prespawned.load(TARGET)
    until(
        lambda: prespawned.probe("startup").startswith(f"{DRAFT} gave no token within"),
        lambda: "the target gives no token",
    )
    prespawned.load(DRAFT)
    assert prespawned.probe("startup") == ""
    assert prespawned.probe("readiness") == ""
    assert prespawned.probe("liveness") == ""
    assert text(ask(prespawned.server.url, "tensorrt_llm_bls", text_input="def f(", max_tokens=8))


@pytest.mark.parametrize("failed", ENGINES)
def test_rank_that_fails_while_it_loads_never_lets_a_pod_start(
    prespawned: Pod, failed: str
) -> None:
    os.kill(prespawned.rank(failed), signal.SIGKILL)
    prespawned.load(*(engine for engine in ENGINES if engine != failed))
    reason = f"{failed} gave no token within"
    # The other engine is loaded only a moment after the signal; until then a probe may name it.
    until(
        lambda: reason in prespawned.probe("startup"),
        lambda: f"no probe reports: {reason}",
    )
    assert prespawned.fails("startup", reason)
    assert prespawned.reports_itself_ready()


def assert_pod_is_left_unready(made: Pod, failed: str) -> None:
    """Check that a ready pod loses readiness when a rank dies, and does not regain it."""
    assert made.probe("startup") == made.probe("readiness") == made.probe("liveness") == ""
    os.kill(made.rank(failed), signal.SIGKILL)
    made.age()
    until(lambda: bool(made.probe("readiness")), lambda: "the pod stays ready")
    assert made.fails("readiness", f"{failed} gave no token within")
    assert made.reports_itself_ready()
    assert f"{failed}: no token and no progress" in made.probe("liveness")


@pytest.mark.parametrize("model", ["preprocessing", TARGET, DRAFT])
def test_dead_process_of_a_model_takes_its_pod_out_at_once(
    serve: Serve, draft_target_plan: RepositoryPlan, tmp_path: Path, model: str
) -> None:
    """The kubelet needs one failure; what still arrives at the endpoint is to be sent again.

    On a node, such a pod stayed in the Service for 53 to 87 s and answered with 400. The hook
    began after the liveness probe had failed, and waited for clients that only got errors.
    """
    with (
        serve(draft_target_plan) as server,
        OpenAIEndpoint(server.url, PAIR / "target") as endpoint,
    ):
        made = pod(server, tmp_path)
        assert made.probe("startup") == made.probe("readiness") == ""
        os.kill(server.process_of(model), signal.SIGKILL)
        until(lambda: bool(made.probe("readiness")), lambda: "the pod stays ready")
        assert made.probe("readiness") == made.probe("liveness") == alive.DEAD
        assert made.reports_itself_ready()
        status, answer = complete(endpoint)
        assert (status, "is not healthy" in answer) == (
            (503, True) if model == TARGET else (200, False)
        )
        hook = launch.pre_stop(
            PLAIN,
            linger_seconds=3600,
            reconnect_seconds=3600,
            exit_timeout_seconds=3600,
            metrics_port=server.metrics_port,
            client_ports=(server.http_port, server.grpc_port),
        )
        subprocess.run(local(hook), check=True, timeout=DEADLINE_SECONDS)


def complete(endpoint: OpenAIEndpoint) -> tuple[int, str]:
    """Ask the endpoint for a completion; return its status and its body."""
    body = json.dumps({"model": MODEL, "prompt": "def f(", "max_tokens": 4}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{endpoint.url}/completions", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as reply:
            return int(reply.status), reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize("failed", ENGINES)
def test_pod_is_not_ready_after_a_rank_of_an_orchestrator_has_died(
    prespawned: Pod, failed: str
) -> None:
    prespawned.load(*ENGINES)
    assert_pod_is_left_unready(prespawned, failed)


def test_pod_whose_server_waits_for_its_ranks_starts_after_them(
    serve: Serve, draft_target_plan: RepositoryPlan, tmp_path: Path
) -> None:
    """This covers leaders, and orchestrators that spawn their ranks."""
    plan = simulated(draft_target_plan, ready_early=False)
    server = serve(plan)
    made = pod(server, tmp_path)
    with ThreadPoolExecutor(1) as pool, ExitStack() as ends:
        ends.callback(server.kill)
        ready = pool.submit(server.__enter__)
        for engine in made.in_order_of_load():
            assert made.probe("startup") == "the server is not ready"
            assert not made.reports_itself_ready()
            made.load(engine)
        ready.result(DEADLINE_SECONDS)
        assert_pod_is_left_unready(made, TARGET)


def test_busy_engine_keeps_its_pod_ready_and_is_not_asked(
    serve: Serve, draft_target_plan: RepositoryPlan, tmp_path: Path
) -> None:
    """Long answers occupy every slot, so a probe's request would wait behind other requests."""
    slow = replace(draft_target_plan.target, step_latency_ms=100.0)
    with (
        serve(replace(draft_target_plan, target=slow)) as server,
        ThreadPoolExecutor(40) as pool,
    ):
        made = pod(server, tmp_path)
        assert made.probe("startup") == ""
        values = {"text_input": "def f(", "max_tokens": 200, "end_id": -1}
        for _ in range(40):
            pool.submit(ask, server.url, "ensemble", **values)
        until(lambda: requests(server) == 40, lambda: "the engine is not full")
        accepted = server.metric("nv_inference_request_success")
        ends = time.monotonic() + 2 * PATIENCE

        def stays_ready_to_the_end() -> bool:
            assert made.probe("readiness") == ""
            assert made.probe("liveness") == ""
            return time.monotonic() >= ends

        until(stays_ready_to_the_end, lambda: "the probes take too long", step=0.5)
        assert requests(server) >= 16
        draft = 1
        assert server.metric("nv_inference_request_success") <= accepted + draft
        server.kill()


def requests(server: Server) -> int:
    """Return the number of requests in the target's engine."""
    lines = server.get_metrics().splitlines()
    prefix = f'specdec_engine_requests{{model="{TARGET}",'
    (line,) = (line for line in lines if line.startswith(prefix))
    return int(float(line.rsplit(" ", 1)[1]))


def test_step_longer_than_the_probe_waits_takes_no_pod_out(
    serve: Serve, draft_target_plan: RepositoryPlan, tmp_path: Path
) -> None:
    """The engine has work, but shows no progress for a minute."""
    slow = replace(draft_target_plan.target, step_latency_ms=60_000.0)
    with (
        serve(replace(draft_target_plan, target=slow)) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        made = pod(server, tmp_path, patience_seconds=600.0)
        # The first attempt's answer comes a minute later: its step proves that the engine works.
        until(lambda: made.probe("startup") == "", lambda: "the pod does not start")
        before = requests(server)
        made.age()
        pool.submit(ask, server.url, "ensemble", text_input="def f(", max_tokens=4)
        until(lambda: requests(server) > before, lambda: "the engine has no work")
        for _ in range(FAILURES):
            assert made.probe("readiness") == ""
        server.kill()


def test_probes_reach_a_server_whose_http_is_closed(
    executable: Path, draft_target_plan: RepositoryPlan, tmp_path: Path
) -> None:
    """The probes send a key of the container, which no client has."""
    manifest = tmp_path / "manifest.json"
    manifest.write_text('{"folders": []}', "utf-8")
    within = local(start.checked([], str(manifest), 1))
    with Server(
        executable,
        render(draft_target_plan),
        tmp_path,
        within,
        health_only=True,
        probe_key=launch.PROBE_KEY,
        env={"SPECDEC_PROBE_KEY": str(tmp_path / "key")},
    ) as server:
        made = pod(server, tmp_path)
        assert made.probe("startup") == ""
        key = (tmp_path / "key").read_text("ascii")
        assert (tmp_path / "key").stat().st_mode & 0o077 == 0
        assert key not in server.log()
        assert made.probe("readiness") == ""
        (tmp_path / "key").write_text(launch.PROBE_KEY)
        made.age()
        until(
            lambda: "gave no token" in made.probe("readiness"),
            lambda: "the probe needs no key",
        )
        for path in ("/v2/models/ensemble/config", "/v2/models/stats", "/v2"):
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(
                    urllib.request.Request(
                        f"http://127.0.0.1:{server.http_port}{path}",
                        headers={"specdec-probe": key},
                    )
                )


def test_probes_leave_the_metrics_of_speculation_alone(
    serve: Serve, draft_target_plan: RepositoryPlan, tmp_path: Path
) -> None:
    with serve(draft_target_plan) as server:
        made = pod(server, tmp_path)
        # Triton opens the port of its metrics last.
        until(lambda: listens(server.metrics_port), lambda: "no metrics")
        before = served(server)
        assert made.probe("startup") == ""
        made.age()
        assert made.probe("readiness") == ""
        assert server.metric("nv_inference_request_success") >= 2
        assert served(server) == before


def listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def served(server: Server) -> list[str]:
    """Return the metrics of the models that clients call; status, top and autoscalers use them."""
    names = ("specdec_", "nv_inference_request", "nv_inference_pending_request_count")
    others = ("specdec_engine_", f'model="{TARGET}"', f'model="{DRAFT}"')
    return [
        line
        for line in server.get_metrics().splitlines()
        if line.startswith(names) and not any(other in line for other in others)
    ]
