"""The startup and readiness probes require a token or progress of every engine, and all ranks."""

import json
import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.processes import until
from specdec.images.serving import alive, engines
from specdec.images.serving.engines import Plan, Record
from unit.client import fake_server
from unit.client.fake_server import Script
from unit.triton import fake_models
from unit.triton.fake_engines import DRAFT, PATIENCE, TARGET, Server

# Timeouts in seconds of a request that the fake server answers, and of one that it does not.
_PATIENT, _UNANSWERED = 600.0, 0.1


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.02,))
        thread.start()
        yield made
        made.closing.set()
        made.shutdown()
        thread.join()


class Clock:
    """The clock of the probes: only their sleeps and their unanswered requests take time."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(engines, "time", made)
    return made


@pytest.fixture(autouse=True)
def files(server: Server, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the probes use files of the test.

    A request that is answered may take as long as the machine needs. One that is not answered ends
    soon, and takes its whole time on the probe's clock.
    """
    ask = engines.token

    def token(plan: Plan, engine: str, seconds: float) -> tuple[str, bool]:
        if server.answers[engine] is not None:
            return ask(plan, engine, _PATIENT)
        clock.sleep(seconds)
        return ask(plan, engine, _UNANSWERED)

    monkeypatch.setattr(engines, "STATE", tmp_path / "engines")
    monkeypatch.setattr(engines, "KEY", tmp_path / "key")
    monkeypatch.setattr(engines, "_REPLY", _PATIENT)
    monkeypatch.setattr(engines, "token", token)
    return tmp_path


def age(seconds: float, **changes: Any) -> None:
    """Move the last progress of every engine into the past."""
    records = engines.load()
    for record in records.values():
        record.at -= seconds
        for name, value in changes.items():
            setattr(record, name, value)
    engines.save(records)


def gauge(engine: str, count: float, name: str = "specdec_engine_requests") -> str:
    return f'{name}{{model="{engine}",version="1"}} {count}'


def steps(engine: str, count: float) -> str:
    return gauge(engine, count, "specdec_engine_steps_total")


def test_startup_needs_a_token_of_every_engine(server: Server) -> None:
    assert engines.startup(server.plan()) == ""
    assert server.requested_engines() == [TARGET, DRAFT]


def test_startup_fails_while_the_server_is_not_ready(server: Server) -> None:
    server.ready = False
    assert engines.startup(server.plan(seconds=0.6)) == "the server is not ready"
    assert server.requested_engines() == []


@pytest.mark.parametrize("silent", [TARGET, DRAFT])
def test_startup_names_the_engine_that_gives_no_token(server: Server, silent: str) -> None:
    server.answers[silent] = None
    assert engines.startup(server.plan()).startswith(f"{silent} gave no token within")
    assert not engines.STATE.exists()


def test_startup_reports_the_error_of_an_engine(server: Server) -> None:
    server.answers[DRAFT] = {"error": "the worker has ended"}
    problem = engines.startup(server.plan())
    assert problem == f"{DRAFT} gave no token: the worker has ended"


def test_startup_leaves_one_request_in_an_attempt(server: Server) -> None:
    """A load lasts for hundreds of attempts, and then the engine gets all of their requests."""
    server.answers[TARGET] = None
    engines.startup(server.plan())
    assert server.requested_engines() == [TARGET]


def test_a_step_proves_an_engine_that_is_slower_than_an_attempt(server: Server) -> None:
    server.answers[TARGET] = None
    server.page = [steps(TARGET, 0)]
    assert engines.startup(server.plan()) != ""
    server.page = [steps(TARGET, 1)]
    assert engines.startup(server.plan(seconds=2.0)) == ""


def test_request_carries_the_key_of_the_container(server: Server) -> None:
    assert engines.token(server.plan(), TARGET, 5.0) == ("", False)
    engines.KEY.write_text("a key")
    assert engines.token(server.plan(), TARGET, 5.0) == ("", False)
    assert [key for _, key in server.requests] == [None, "a key"]


def test_readiness_asks_only_idle_engines_and_seldom(server: Server) -> None:
    engines.startup(server.plan())
    server.requested_engines()
    assert engines.readiness(server.plan()) == ""
    assert server.requested_engines() == []
    age(20.0)
    assert engines.readiness(server.plan()) == ""
    assert server.requested_engines() == [TARGET, DRAFT]
    # The target shows progress, so the probe requests a token only from the draft.
    age(20.0)
    server.page = [steps(TARGET, 5)]
    assert engines.readiness(server.plan()) == ""
    assert server.requested_engines() == [DRAFT]


@pytest.mark.parametrize(
    "line",
    [
        'nv_trt_llm_general_metrics{general_type="iteration_counter",model="%s"} 9',
        'nv_llm_output_token_len_count{model="%s"} 9',
        'nv_inference_request_success{model="%s"} 9',
    ],
)
def test_counters_of_tensorrt_llm_show_progress(server: Server, line: str, clock: Clock) -> None:
    server.answers |= {TARGET: None, DRAFT: None}
    engines.save({TARGET: Record(clock.now - 20), DRAFT: Record(clock.now)})
    server.page = [line % TARGET, 'nv_trt_llm_general_metrics{general_type="timestamp"} 5']
    assert engines.readiness(server.plan()) == ""
    assert server.requested_engines() == []


def test_accepted_request_of_a_python_model_is_no_progress(server: Server) -> None:
    """Triton counts such a request as a success before the model answers it."""
    page = "\n".join([steps(TARGET, 3), gauge(TARGET, 9, "nv_inference_request_success")])
    assert engines.progress(page, TARGET, server.plan().counters) == {
        "specdec_engine_steps_total": 3
    }


def test_idle_engine_without_a_token_fails_until_it_shows_progress(server: Server) -> None:
    server.page = [steps(TARGET, 1), gauge(TARGET, 0), steps(DRAFT, 1), gauge(DRAFT, 0)]
    engines.startup(server.plan())
    age(20.0)
    server.answers[DRAFT] = None
    assert engines.readiness(server.plan()).startswith(f"{DRAFT} gave no token")
    # The engine holds the probe's request and requests of clients, but shows no progress.
    server.page[3] = gauge(DRAFT, 7)
    assert engines.readiness(server.plan()).startswith(f"{DRAFT} gave no token")
    server.page[2] = steps(DRAFT, 2)
    assert engines.readiness(server.plan()) == ""
    assert not engines.load()[DRAFT].failed


def test_request_of_the_probe_itself_is_not_work(server: Server, clock: Clock) -> None:
    """The probe's own unanswered request does not make an engine busy."""
    server.page = [gauge(TARGET, 1), gauge(DRAFT, 0)]
    engines.save({TARGET: Record(clock.now - 20, unanswered=1)})
    server.answers[TARGET] = None
    assert engines.readiness(server.plan()).startswith(f"{TARGET} gave no token")


def test_full_queue_does_not_take_a_pod_out(server: Server) -> None:
    """The probe is not answered in time, or is refused, but the engine has work."""
    server.page = [steps(TARGET, 1), gauge(TARGET, 900), steps(DRAFT, 1), gauge(DRAFT, 900)]
    engines.startup(server.plan())
    server.requested_engines()
    server.answers |= {TARGET: None, DRAFT: {"error": "900 requests are waiting; retry later"}}
    for _ in range(3):
        age(20.0)
        assert engines.readiness(server.plan()) == ""
    # The first request waits in the target, so the probe sends no other requests to it.
    assert server.requested_engines().count(TARGET) == 1


def test_engine_with_work_fails_after_the_time_of_a_long_request(
    server: Server, clock: Clock
) -> None:
    server.page = [gauge(TARGET, 5), gauge(DRAFT, 0)]
    engines.save({name: Record(clock.now) for name in (TARGET, DRAFT)})
    server.answers[TARGET] = None
    age(PATIENCE - 100)
    assert engines.readiness(server.plan()) == ""
    age(200)
    assert engines.readiness(server.plan()) == f"{TARGET} makes no progress"


def test_engine_without_metrics_fails_after_the_time_of_a_long_request(
    server: Server, clock: Clock
) -> None:
    """Without metrics, the probe cannot see whether the engine has work."""
    engines.save({name: Record(clock.now - 20) for name in (TARGET, DRAFT)})
    server.answers[TARGET] = None
    assert engines.readiness(server.plan()) == ""
    age(PATIENCE)
    assert engines.readiness(server.plan()).startswith(f"{TARGET} makes no progress")


def test_missing_metrics_are_no_progress(server: Server) -> None:
    server.page = [steps(TARGET, 1), gauge(TARGET, 0)]
    engines.startup(server.plan(engines=(TARGET,)))
    age(20.0)
    server.page = []
    server.requested_engines()
    assert engines.readiness(server.plan(engines=(TARGET,))) == ""
    assert server.requested_engines() == [TARGET]


def test_server_that_is_not_ready_is_reported_first(server: Server) -> None:
    server.ready = False
    assert engines.readiness(server.plan()) == "the server is not ready"


def test_server_whose_streams_are_blocked_is_not_ready_and_then_restarted(
    server: Server, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its HTTP endpoint and its engines answer as before."""
    script = Script(error="unknown model")
    streaming, url = fake_server.serve(script)
    plan = server.plan(grpc=int(url.rpartition(":")[2]))
    monkeypatch.setattr(engines, "_STREAM", _PATIENT)
    try:
        assert engines.startup(plan) == engines.readiness(plan) == ""
        monkeypatch.setattr(engines, "_STREAM", _UNANSWERED)
        script.silent = True
        script.hold.clear()
        problem = engines.readiness(plan)
        assert problem == "a gRPC stream got no response within 0 s"
        clock.now += PATIENCE + 1
        assert engines.readiness(plan) == problem
        assert engines.load()["gRPC streams"].failed
        assert engines.load()["gRPC streams"].at < clock.now - PATIENCE
        script.silent = False
        script.hold.set()
        monkeypatch.setattr(engines, "_STREAM", _PATIENT)
        assert engines.readiness(plan) == ""
    finally:
        script.hold.set()
        streaming.stop(None)
    assert not engines.load()["gRPC streams"].failed


def rank(mark: str, number: int) -> subprocess.Popen[bytes]:
    """Start a process with the command line of the server of a rank."""
    arguments = ["tritonserver", "-c", "sleep 600; :", f"{mark}{number}_"]
    return subprocess.Popen(arguments, executable="/bin/sh", start_new_session=True)


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
def test_dead_rank_is_reported_before_anybody_has_waited_for_it(server: Server) -> None:
    mark = f"--backend-config=python,shm-region-prefix-name=test_{uuid.uuid4().hex}_rank"
    plan = server.plan(ranks=2, mark=mark)
    ranks = [rank(mark, number) for number in range(2)]
    try:
        until(lambda: alive.ranks(mark) == 2, lambda: "the ranks do not run")
        engines.startup(plan)
        assert engines.readiness(plan) == ""
        os.killpg(ranks[1].pid, signal.SIGKILL)
        until(lambda: alive.ranks(mark) == 1, lambda: "the rank runs")
        assert engines.readiness(plan) == "1 of 2 ranks have died"
    finally:
        for process in ranks:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_liveness_fails_when_a_failure_lasts(files: Path) -> None:
    now = time.monotonic()
    state = files / "engines"
    assert list(alive.failed(60.0, state)) == []
    engines.save(
        {
            TARGET: Record(now - 100),
            DRAFT: Record(now - 100, failed=True),
            "ranks": Record(now - 50, failed=True),
        }
    )
    assert list(alive.failed(60.0, state)) == [DRAFT]
    state.write_text("no JSON")
    assert list(alive.failed(60.0, state)) == []


def test_main_runs_a_probe_on_a_plan_in_json(server: Server) -> None:
    plan = json.dumps(server.plan(engines=[TARGET])._asdict())
    assert engines.main("startup", plan) == ""
    server.ready = False
    runs = [engines.main("readiness", plan) for _ in range(3)]
    assert runs == ["", "", "the server is not ready"]


def test_problem_that_may_pass_is_reported_at_the_third_run_in_a_row(server: Server) -> None:
    """The kubelet takes the pod out at the first failure, so the probe counts the runs."""
    plan = server.plan(engines=(TARGET,))
    engines.startup(plan)
    problem = "the server is not ready"
    for ready, reported in [
        (False, ""),
        (False, ""),
        (True, ""),
        (False, ""),
        (False, ""),
        (False, problem),
        (False, problem),
        (True, ""),
        (False, ""),
    ]:
        server.ready = ready
        assert engines.certain(plan) == reported
    server.ready = True
    engines.startup(plan)  # the container has restarted: its runs begin anew
    server.ready = False
    assert [engines.certain(plan) for _ in range(2)] == ["", ""]


def test_dead_process_of_a_model_fails_readiness_at_the_first_run(
    server: Server, tmp_path: Path
) -> None:
    """For 53 to 87 s its pod stayed in the Service, and clients got HTTP 400."""
    plan = server.plan(engines=(TARGET,))
    engines.startup(plan)
    with fake_models.server(tmp_path, plan.http) as process:
        assert engines.certain(plan) == ""
        os.kill(process, signal.SIGKILL)
        until(lambda: any(alive.dead(plan.http)), lambda: "the process still runs")
        assert engines.certain(plan) == alive.DEAD
