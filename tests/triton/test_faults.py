"""Killed or missing engines: answers continue without a draft, and end without a target."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from cluster.processes import DEADLINE_SECONDS, until
from specdec.servers.bls.serving import TOKEN
from specdec.triton.layout import PLAIN
from specdec.triton.probes import programs
from specdec.triton.repository import RepositoryPlan, render
from support.programs import local
from support.triton_client import RefusedError, ask, stream, text
from support.triton_server import Server
from triton.conftest import Serve

BLS = "tensorrt_llm_bls"
DRAFT = "tensorrt_llm_draft"
TARGET = "tensorrt_llm"
TOKENS = 40
# Far more than the answers need on a busy machine; a call that never returns takes longer.
STALL_SECONDS = 60.0
WARNING = "answers continue without the draft model"
PROMPTS = [f"def f{number}():\n" for number in range(4)]


def answers(server: Server, model: str) -> list[str]:
    """Send all prompts at once, half of them as streams, and return the answers."""

    def answer(number: int) -> str:
        values = {"text_input": PROMPTS[number], "max_tokens": TOKENS, "stream": number % 2 == 0}
        return text(ask(server.url, model, exclude_input_in_output=True, **values))

    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        return list(pool.map(answer, range(len(PROMPTS))))


def draft_errors(server: Server) -> int:
    lines = server.get_metrics().splitlines()
    counters = [line for line in lines if line.startswith("specdec_fallback_total{")]
    return sum(int(line.rsplit(" ", 1)[1]) for line in counters if 'reason="draft_error"' in line)


def warnings(server: Server) -> Sequence[str]:
    return [line for line in server.log().splitlines() if WARNING in line]


def test_answers_go_on_without_a_draft_model(
    serve: Serve, draft_target_plan: RepositoryPlan
) -> None:
    files = render(draft_target_plan)
    without = {path: text for path, text in files.items() if path.split("/")[0] != DRAFT}
    with serve(without) as server:
        expected = answers(server, "ensemble")
        for times in (1, 2):
            assert answers(server, BLS) == expected
            assert draft_errors(server) == times * len(PROMPTS)
        (line,) = warnings(server)
        assert DRAFT in line
        assert "Traceback" not in server.log()
        assert server.metric("specdec_rounds_total") == 0


def test_answers_go_on_when_the_draft_is_killed(
    serve: Serve, draft_target_plan: RepositoryPlan
) -> None:
    with serve(draft_target_plan) as server:
        expected = answers(server, "ensemble")
        assert answers(server, BLS) == expected
        assert draft_errors(server) == 0
        os.kill(server.process_of(DRAFT), signal.SIGKILL)
        for times in (1, 2):
            begun = time.monotonic()
            assert answers(server, BLS) == expected
            assert time.monotonic() - begun < STALL_SECONDS
            assert draft_errors(server) == times * len(PROMPTS)
        (line,) = warnings(server)
        assert DRAFT in line


def probe(server: Server) -> str:
    """Run the liveness probe and return its message, which is empty for a healthy server."""
    program = programs(
        PLAIN, [TARGET], TOKEN, attempt_seconds=1, patience_seconds=60, http_port=server.http_port
    ).liveness
    done = subprocess.run(
        local(program), capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )
    assert bool(done.returncode) == bool(done.stderr)
    return done.stderr.strip()


def in_flight(server: Server, count: int) -> None:
    def reached() -> bool:
        return server.metric("specdec_requests_in_flight") == count

    until(reached, lambda: f"not {count} answers are in flight")


def last_message(server: Server, number: int, begun: threading.Barrier) -> str:
    """Return the message that ends a plain stream whose target dies after the first part."""
    values = {"text_input": PROMPTS[number], "max_tokens": 400, "num_draft_tokens": 0}
    with stream(server.url, BLS, stream=True, end_id=-1, **values) as answer:
        parts = iter(answer)
        next(parts)
        begun.wait(DEADLINE_SECONDS)
        try:
            list(parts)
        except RefusedError as error:
            return str(error)
    return "it was answered"


def test_no_answer_waits_for_an_engine_killed_in_the_middle_of_a_call(
    serve: Serve, draft_target_plan: RepositoryPlan
) -> None:
    """Triton never returns a call that a killed process had taken, and still reports ready."""
    assert draft_target_plan.draft is not None
    plan = replace(
        draft_target_plan,
        # A call of the draft takes longer than the test, a call of the target only a moment.
        draft=replace(draft_target_plan.draft, step_latency_ms=2000.0 * DEADLINE_SECONDS),
        target=replace(draft_target_plan.target, step_latency_ms=20.0),
    )
    with serve(plan) as server, ThreadPoolExecutor(5) as pool:
        expected = answers(server, "ensemble")
        assert probe(server) == ""
        speculative = pool.submit(answers, server, BLS)
        in_flight(server, len(PROMPTS))
        os.kill(server.process_of(DRAFT), signal.SIGKILL)
        assert speculative.result(DEADLINE_SECONDS) == expected
        assert draft_errors(server) == len(PROMPTS)
        in_flight(server, 0)

        begun = threading.Barrier(len(PROMPTS) + 1)
        plain = [pool.submit(last_message, server, n, begun) for n in range(len(PROMPTS))]
        begun.wait(DEADLINE_SECONDS)
        os.kill(server.process_of(TARGET), signal.SIGKILL)
        messages = [future.result(DEADLINE_SECONDS) for future in plain]
        assert all(message.startswith(f"{TARGET}: ") for message in messages)
        assert any("its process ended during the call: ask again" in text for text in messages)
        in_flight(server, 0)
        assert probe(server).startswith("the process of a model has died")
        assert "Traceback" not in server.log()
        # Otherwise the server waits its whole exit timeout for calls that never end.
        os.kill(server.processes()[0], signal.SIGKILL)
