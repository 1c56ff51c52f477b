"""A draft that is killed or not there costs an answer its speculation and nothing else."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from specdec.triton.repository import RepositoryPlan, render
from triton.asking import ask, text
from triton.server import Server

BLS = "tensorrt_llm_bls"
DRAFT = "tensorrt_llm_draft"
TOKENS = 40
# Far above what the answers take on a crowded machine, far below a call that waits for nobody.
STALL_SECONDS = 30.0
WARNING = "answers go on with the target alone"
PROMPTS = [f"def f{number}():\n" for number in range(4)]


def answers(server: Server, model: str) -> list[str]:
    """All prompts at once, half of them as streams."""

    def answer(number: int) -> str:
        values = {"text_input": PROMPTS[number], "max_tokens": TOKENS, "stream": number % 2 == 0}
        return text(ask(server.url, model, exclude_input_in_output=True, **values))

    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        return list(pool.map(answer, range(len(PROMPTS))))


def draft_errors(server: Server) -> int:
    lines = server.get_metrics().splitlines()
    found = [line for line in lines if line.startswith("specdec_fallback_total{")]
    return sum(int(line.rsplit(" ", 1)[1]) for line in found if 'reason="draft_error"' in line)


def said(server: Server) -> Sequence[str]:
    return [line for line in server.log().splitlines() if WARNING in line]


def test_answers_go_on_without_a_draft_model(
    executable: Path, draft_target_plan: RepositoryPlan, tmp_path: Path
) -> None:
    files = render(draft_target_plan)
    without = {path: text for path, text in files.items() if path.split("/")[0] != DRAFT}
    with Server(executable, without, tmp_path) as server:
        wanted = answers(server, "ensemble")
        for times in (1, 2):
            assert answers(server, BLS) == wanted
            assert draft_errors(server) == times * len(PROMPTS)
        (line,) = said(server)
        assert DRAFT in line
        assert "Traceback" not in server.log()
        assert server.metric("specdec_rounds_total") == 0


def test_answers_go_on_when_the_draft_is_killed(
    executable: Path, draft_target_plan: RepositoryPlan, tmp_path: Path
) -> None:
    with Server(executable, render(draft_target_plan), tmp_path) as server:
        wanted = answers(server, "ensemble")
        assert answers(server, BLS) == wanted
        assert draft_errors(server) == 0
        os.kill(server.process_of(DRAFT), signal.SIGKILL)
        for times in (1, 2):
            begun = time.monotonic()
            assert answers(server, BLS) == wanted
            assert time.monotonic() - begun < STALL_SECONDS
            assert draft_errors(server) == times * len(PROMPTS)
        (line,) = said(server)
        assert DRAFT in line
