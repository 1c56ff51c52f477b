"""Rounds of several requests are rows of one call, where the engine takes such calls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.baseline import cycle, load
from bench.baseline.clients import prompt
from support.triton_client import ask, text
from support.triton_server import Server

CLIENTS = 8
ENGINES = ("tensorrt_llm", "tensorrt_llm_draft")


@pytest.fixture
def pair(tmp_path: Path) -> cycle.Pair:
    return cycle.build(tmp_path, 0.8, 64, 2 * load.LENGTH)


def _answer(server: Server, client: int) -> str:
    # Their last rounds have fewer draft tokens than the others' at the same time.
    values = {"text_input": prompt(client, 0), "max_tokens": 48 - client, "end_id": -1}
    return text(ask(server.url, load.BLS, stream=True, **values))


def _together(server: Server) -> list[str]:
    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(lambda client: _answer(server, client), range(CLIENTS)))


def test_many_answers_share_calls(executable: Path, pair: cycle.Pair) -> None:
    files = load.repository(pair, streaming=True, target_ms=10, draft_ms=1, synchronize="Always")
    with load.serving(files) as server:
        together = _together(server)
        calls = server.metric("nv_inference_request_success")
        rounds = server.metric("specdec_rounds_total")
        alone = [_answer(server, client) for client in range(CLIENTS)]
    assert together == alone
    # Each on its own way would have taken two for every round.
    assert CLIENTS < calls < rounds


def test_an_engine_that_takes_one_prompt_a_call_gets_no_more(
    executable: Path, pair: cycle.Pair
) -> None:
    files = load.at_once(load.repository(pair, streaming=True))
    model = Path(__file__).with_name("one_row.py").read_text("utf-8")
    for name in ENGINES:
        files[f"{name}/1/echo.py"] = files[f"{name}/1/model.py"]
        files[f"{name}/1/model.py"] = model
    with load.serving(files) as server:
        together = _together(server)
        alone = [_answer(server, client) for client in range(CLIENTS)]
        log = server.log()
    assert together == alone
    assert "takes one prompt a call: the BLS sends one row a call" in log
