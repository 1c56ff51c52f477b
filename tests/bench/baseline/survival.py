"""The gain of cutting the draft model's proposals by their log probabilities.

The engines simulate 20 ms for a target step and 2 ms for a draft step. Their tokens and log
probabilities come from answers of the shipped pair for which the target accepts 0.6 to 0.8 of the
draft's tokens. Acceptance therefore varies within an answer as it does for that pair.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from time import perf_counter

from tokenizers import Tokenizer

from bench.baseline.drafts import Answer, answers
from bench.baseline.load import BLS, DRAFT_MS, TARGET_MS, serving, simulated
from specdec.triton.plan import DraftLengths
from specdec.triton.repository import ModelPlan, RepositoryPlan, render
from support.bench_report import Report
from support.shipped_pair import PAIR
from support.triton_client import ask
from support.triton_client import text as text_of
from support.triton_server import Server

MOST = 16
LENGTHS = (2, 3, 4, 5, 6)
GOAL = 1.05
_ACCEPTANCE = (0.6, 0.8)
_ANSWERS = 12
_TOKENS = 96
# Passes over all prompts before the first measurement, so that the policy knows the costs.
_FIRST = 2


@dataclass(frozen=True)
class Service:
    """A server, and the prompts with their expected answers."""

    server: Server
    texts: list[tuple[str, str]]

    def speed(self, clients: int, **more: int) -> float:
        """Return the tokens per second of this many clients.

        Raises:
            RuntimeError: an answer differs from the target's own.
        """

        def answer(text: tuple[str, str]) -> None:
            values = {"max_tokens": _TOKENS, "end_id": -1, **more}
            output = text_of(ask(self.server.url, BLS, text_input=text[0], **values))
            if output != text[1]:
                raise RuntimeError(f"the answer differs from the target's own: {output!r:.300}")

        begun = perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(answer, self.texts))
        return len(self.texts) * _TOKENS / (perf_counter() - begun)


def compare(report: Report, folder: Path, runs: int) -> None:
    """Print the speed of adaptive proposals relative to the best fixed draft length."""
    least, most = _ACCEPTANCE
    recorded = [
        answer
        for answer in answers(folder, _TOKENS, MOST)
        if least <= mean(answer.right()) <= most
    ][:_ANSWERS]
    acceptance = [mean(answer.right()) for answer in recorded]
    report.figure("drafting.survival_acceptance", acceptance, "ratio", better="higher")
    with _serving(folder, recorded) as service:
        for clients, goal in ((1, GOAL), (4, None)):
            _compare(report, service, clients, goal, runs)


def _compare(
    report: Report, service: Service, clients: int, goal: float | None, runs: int
) -> None:
    for _ in range(_FIRST):
        service.speed(clients)
    shares, lengths = [], []
    for _ in range(runs):
        fixed = {length: service.speed(clients, num_draft_tokens=length) for length in LENGTHS}
        lengths.append(float(max(fixed, key=lambda length: fixed[length])))
        shares.append(service.speed(clients) / max(fixed.values()))
    name = f"drafting.survival_clients_{clients}"
    report.figure(f"{name}_best_fixed_length", lengths, "tokens", better="higher")
    report.figure(f"{name}_of_best_fixed", shares, "ratio", goal=goal, better="higher")


@contextmanager
def _serving(folder: Path, recorded: list[Answer]) -> Iterator[Service]:
    files = {"texts": folder / "answers.json", "drafts": folder / "drafts.json"}
    whole = [answer.prompt + answer.answer for answer in recorded]
    files["texts"].write_text(json.dumps(whole), "utf-8")
    files["drafts"].write_text(json.dumps([answer.drafts for answer in recorded]), "utf-8")
    plan = RepositoryPlan(
        version="0.19.0",
        tokenizer_dir=str(PAIR / "target"),
        target=ModelPlan(str(folder), (0,), step_latency_ms=TARGET_MS),
        draft=ModelPlan(str(folder), (0,), step_latency_ms=DRAFT_MS),
        max_batch_size=16,
        rows_per_call=16,
        adaptive=DraftLengths(0, MOST),
        draft_tokens=4,
        max_draft_tokens=MOST,
        max_seq_len=512,
    )
    parameters = {name: str(path) for name, path in files.items()}
    tokenizer = Tokenizer.from_file(str(PAIR / "target" / "tokenizer.json"))
    texts = [
        (tokenizer.decode(answer.prompt), tokenizer.decode(answer.prompt + answer.answer))
        for answer in recorded
    ]
    with serving(simulated(render(plan), "Shared", **parameters)) as server:
        yield Service(server, texts)
