"""Rounds of several requests become rows of one call, if the engine takes such calls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.baseline import cycle, load
from bench.baseline.clients import prompt
from support.triton_client import RefusedError, ask, text
from support.triton_server import Server

CLIENTS = 8
FAILING_PENALTY = 0.5
ENGINES = ("tensorrt_llm", "tensorrt_llm_draft")


@pytest.fixture
def pair(tmp_path: Path) -> cycle.Pair:
    return cycle.build(tmp_path, 0.8, 64, 2 * load.LENGTH)


def _answer(server: Server, client: int, **more: float) -> str:
    # Answers differ in length: last rounds have fewer draft tokens than other clients' rounds.
    values = {"text_input": prompt(client, 0), "max_tokens": 48 - client, "end_id": -1}
    return text(ask(server.url, load.BLS, stream=True, **values, **more))


def _together(server: Server) -> list[str]:
    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(lambda client: _answer(server, client), range(CLIENTS)))


def _served_by(files: dict[str, str], models: dict[str, str]) -> dict[str, str]:
    """Return the same repository with engines whose source lies beside this file."""
    files = load.at_once(files)
    for name, model in models.items():
        files[f"{name}/1/echo.py"] = files[f"{name}/1/model.py"]
        files[f"{name}/1/model.py"] = Path(__file__).with_name(f"{model}.py").read_text("utf-8")
    return files


def test_many_answers_share_calls(executable: Path, pair: cycle.Pair) -> None:
    files = load.repository(pair, streaming=True, target_ms=10, draft_ms=1, synchronize="Always")
    with load.serving(files) as server:
        together = _together(server)
        calls = server.metric("nv_inference_request_success")
        rounds = server.metric("specdec_rounds_total")
        alone = [_answer(server, client) for client in range(CLIENTS)]
    assert together == alone
    # Without shared calls, every round would take two.
    assert CLIENTS < calls < rounds


def test_calls_of_one_row_start_together(executable: Path, pair: cycle.Pair) -> None:
    files = load.repository(
        pair, streaming=True, target_ms=10, draft_ms=1, rows=1, synchronize="Always"
    )
    with load.serving(files) as server:
        together = _together(server)
        calls = server.metric("nv_inference_request_success")
        executions = server.metric("nv_inference_exec_count")
        rounds = server.metric("specdec_rounds_total")
        alone = [_answer(server, client) for client in range(CLIENTS)]
    assert together == alone
    # Each round has a call of the draft and one of the target.
    assert calls > 2 * rounds - CLIENTS
    # Triton passes calls that arrive together to an engine as one batch, at the start of a step.
    assert executions < calls / 2


def test_rows_per_call_do_not_change_answers(executable: Path, pair: cycle.Pair) -> None:
    answers = []
    for rows in (1, 3, load.CLIENTS):
        files = load.repository(pair, streaming=True, target_ms=1, draft_ms=0.2, rows=rows)
        with load.serving(files) as server:
            answers.append(_together(server))
    assert answers[0] == answers[1] == answers[2]


def test_a_row_that_fails_ends_only_its_own_answer(executable: Path, pair: cycle.Pair) -> None:
    files = load.repository(pair, streaming=True, rows=1, synchronize="Always")
    target, draft = ENGINES
    files = _served_by(files, {target: "failing_row", draft: "one_row"})
    with load.serving(files) as server, ThreadPoolExecutor(CLIENTS + 1) as pool:
        failing = pool.submit(_answer, server, CLIENTS, frequency_penalty=FAILING_PENALTY)
        together = list(pool.map(lambda client: _answer(server, client), range(CLIENTS)))
        with pytest.raises(RefusedError, match="a row with a penalty"):
            failing.result()
        alone = [_answer(server, client) for client in range(CLIENTS)]
    assert together == alone


def test_an_engine_that_takes_one_prompt_a_call_gets_no_more(
    executable: Path, pair: cycle.Pair
) -> None:
    files = load.repository(pair, streaming=True)
    files = _served_by(files, dict.fromkeys(ENGINES, "one_row"))
    with load.serving(files) as server:
        together = _together(server)
        alone = [_answer(server, client) for client in range(CLIENTS)]
        log = server.log()
    assert together == alone
    assert "takes one prompt a call: the BLS sends one row a call" in log
