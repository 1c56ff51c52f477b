"""The Reference engine's cost relative to a bare NumPy loop, and the pair's speedup.

`make bench NAME=reference` prints one JSON line a figure and exits 1 when a goal is missed.
It uses one thread. The two sides of every ratio alternate within one run.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits
from tokenizers import Tokenizer

from bench.baseline.bare import Bare
from specdec.images.backend.tensorrtllm.reference_engine.config import EngineConfig, Lookahead
from specdec.images.backend.tensorrtllm.reference_engine.kv import KVPool
from specdec.images.backend.tensorrtllm.reference_engine.llama import Llama
from specdec.images.backend.tensorrtllm.reference_engine.request import Request, Ticket, Update
from specdec.images.backend.tensorrtllm.reference_engine.scheduler import (
    Scheduler,
    SchedulerLimits,
)
from specdec.images.backend.tensorrtllm.reference_engine.sequence import Sequence
from specdec.images.backend.tensorrtllm.reference_engine.weights import load
from support.bench_report import Report

PAYLOAD = Path(__file__).resolve().parents[2] / "operator" / "specdec" / "images"
Ids = npt.NDArray[np.int64]
CONTEXT = 128
STEPS = 40
# Both sides only compute, in one thread. Other load does not count in that thread's time.
clock = time.thread_time


def build(checkpoint: Path, output: Path) -> Llama:
    """Build an engine with the product's own build, and load it."""
    limits = {"maxBatchSize": 8, "maxInputLen": 512, "maxSeqLen": 512, "maxNumTokens": 1024}
    plan = {
        "backend": "Reference",
        "checkpoint": str(checkpoint),
        "output": str(output),
        "key": output.name,
        "limits": limits,
        "maxDraftTokens": 128,
    }
    command = [sys.executable, str(PAYLOAD / "build" / "build_engine.py"), "--plan", "-"]
    subprocess.run(
        command, input=json.dumps(plan), text=True, check=True, stdout=subprocess.DEVNULL
    )
    return Llama(EngineConfig.read(output), load(output / "rank0.engine"))


class Rounds:
    """Engine steps as the scheduler runs them, without its thread."""

    def __init__(self, model: Llama, context: Ids) -> None:
        self._model = model
        self._context = context
        self._pool = KVPool(model.config, 1 << 16, reuse=True)

    def start(self, prompt: Ids, max_new: int, draft: Ids | None = None) -> Sequence:
        """Admit a request."""
        ticket = Ticket(Request(prompt, max_new, draft=draft), _ignore)
        needed = prompt.size + max_new + (0 if draft is None else draft.size)
        reservation = self._pool.reserve(prompt, needed, prompt.size - 1)
        assert reservation is not None
        return Sequence(ticket, self._model, reservation, None)

    def step(self, sequence: Sequence) -> None:
        """Compute one pass and add its tokens to the sequence."""
        rows = sequence.rows()
        sequence.advance(rows, self._model.forward([rows])[0])

    def decode(self) -> float:
        """Return seconds of one step that gives one token, near the context length."""
        sequence = self.start(self._context, STEPS + 1)
        self.step(sequence)
        start = clock()
        for _ in range(STEPS):
            self.step(sequence)
        seconds = clock() - start
        self._pool.release(sequence.buffer, keep=False)
        return seconds / STEPS

    def verify(self, drafts: int) -> float:
        """Return seconds of one whole verification round: admission, pass, answer, release."""
        draft = self._context[:drafts]
        first = self.start(self._context, 1)
        self.step(first)
        self._pool.release(first.buffer, keep=True)
        start = clock()
        for _ in range(STEPS):
            sequence = self.start(self._context, drafts + 1, draft)
            self.step(sequence)
            sequence.update()
            self._pool.release(sequence.buffer, keep=True)
        return (clock() - start) / STEPS


def _ignore(update: Update) -> None:
    del update


def bare_step(bare: Bare, context: Ids, rows: int) -> float:
    """Return seconds of one bare pass of `rows` rows and its argmax, at the same lengths."""
    bare.step(context, 0)
    tokens = context[:rows]
    start = clock()
    for index in range(STEPS):
        at = CONTEXT + index if rows == 1 else CONTEXT - 1
        bare.step(tokens, at).argmax(axis=1)
    return (clock() - start) / STEPS


def compare(
    report: Report, name: str, ours: Callable[[], float], bound: Callable[[], float], runs: int
) -> None:
    """Print both times and their ratio; the sides alternate, so that load affects both."""
    for side in (ours, bound):
        side()
    pairs = []
    for index in range(runs):
        # The side that starts alternates too.
        first, second = (ours, bound) if index % 2 else (bound, ours)
        values = {first: first(), second: second()}
        pairs.append((values[ours], values[bound]))
    report.figure(f"reference.{name}_ms", [1e3 * one for one, _ in pairs], "ms")
    report.figure(f"reference.{name}_bare_ms", [1e3 * other for _, other in pairs], "ms")
    ratios = [one / other for one, other in pairs]
    report.figure(f"reference.{name}_of_bare", ratios, "ratio", goal=1.3)


class Client:
    """Blocking calls to a scheduler, as a BLS makes them."""

    def __init__(self, model: Llama, lookahead: Lookahead | None = None) -> None:
        self._scheduler = Scheduler(model, SchedulerLimits(), lookahead)

    def call(self, prompt: list[int], max_new: int, draft: list[int] | None = None) -> Update:
        """Return the answer."""
        done, updates = threading.Event(), []

        def listener(update: Update) -> None:
            updates.append(update)
            done.set()

        ids = None if draft is None else np.array(draft, np.int64)
        request = Request(np.array(prompt, np.int64), max_new, draft=ids)
        self._scheduler.submit([[self._scheduler.ticket(request, listener)]])
        done.wait()
        assert not updates[0].error, updates[0].error
        return updates[0]

    def close(self) -> None:
        """Stop the scheduler."""
        self._scheduler.close()


@dataclass
class Tally:
    """Draft tokens offered and accepted, and verification steps."""

    drafted: int = 0
    accepted: int = 0
    rounds: int = 0

    def add(self, update: Update) -> None:
        """Count one round."""
        self.drafted += update.drafted
        self.accepted += update.accepted
        self.rounds += 1

    @property
    def tokens_per_step(self) -> float:
        """Return the average tokens of a round: accepted draft tokens and the target's token."""
        return self.accepted / self.rounds + 1


def speculate(
    target: Client, draft: Client, prompt: list[int], new: int, k: int, full: Tally, every: Tally
) -> list[int]:
    """Return the tokens of one answer; `every` counts all rounds, `full` those with k tokens.

    The last rounds of an answer have no room for k tokens. Their number depends on `new`, not on
    the pair.
    """
    ids = list(prompt)
    end = len(prompt) + new
    while len(ids) < end:
        length = min(k, end - len(ids) - 1)
        proposal = draft.call(ids, length).tokens if length else None
        update = target.call(ids, length + 1, proposal)
        ids += update.tokens
        every.add(update)
        if length == k:
            full.add(update)
    return ids[len(prompt) :]


def pair_figures(
    report: Report, target: Llama, draft: Llama, prompts: list[list[int]], new: int
) -> None:
    """Print acceptance, tokens a step, identity, and the plain to speculative speed ratio."""
    server, helper = Client(target), Client(draft)
    plain, speeds, same = [], [], 0
    full, every = Tally(), Tally()
    for prompt in prompts:
        start = time.perf_counter()
        plain.append(server.call(prompt, new).tokens)
        middle = time.perf_counter()
        tokens = speculate(server, helper, prompt, new, 4, full, every)
        speeds.append((middle - start) / (time.perf_counter() - middle))
        same += tokens == plain[-1]
    # The goals apply to full rounds: 1 + 4 x 0.577 = 3.31. A further figure includes cut rounds.
    acceptance = full.accepted / full.drafted
    report.figure("reference.acceptance_k4", [acceptance], "ratio", goal=0.577, better="higher")
    report.figure(
        "reference.tokens_per_step_k4", [full.tokens_per_step], "tokens", goal=3.3, better="higher"
    )
    report.figure(
        "reference.tokens_per_step_k4_cut_at_end",
        [every.tokens_per_step],
        "tokens",
        better="higher",
    )
    report.figure(
        "reference.identical_k4", [same / len(prompts)], "ratio", goal=1.0, better="higher"
    )
    report.figure("reference.speculative_speed_k4", speeds, "ratio", better="higher")
    lookahead = Client(target, Lookahead(5, 4, 5))
    answers = [lookahead.call(prompt, new) for prompt in prompts]
    steps = sum(answer.steps for answer in answers)
    tokens_made = sum(len(answer.tokens) for answer in answers)
    report.figure(
        "reference.lookahead_tokens_per_step", [tokens_made / steps], "tokens", better="higher"
    )
    equal = sum(a.tokens == b for a, b in zip(answers, plain, strict=True)) / len(prompts)
    report.figure("reference.lookahead_identical", [equal], "ratio", goal=1.0, better="higher")
    for client in (server, helper, lookahead):
        client.close()


def main() -> int:
    """Run the bench; return 0 if every goal is met."""
    parser = argparse.ArgumentParser(description="Benchmark the Reference engine")
    parser.add_argument("--runs", type=int, default=15, help="repetitions of each ratio")
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--new-tokens", type=int, default=128)
    options = parser.parse_args()
    report = Report()
    pair = PAYLOAD / "pair"
    tokenizer = Tokenizer.from_file(str(pair / "target" / "tokenizer.json"))
    lines = (pair / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    prompts = [tokenizer.encode(json.loads(line)["prompt"]).ids for line in lines]
    prompts = prompts[: options.prompts]
    context = np.concatenate([np.array(ids, np.int64) for ids in prompts])[:CONTEXT]
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        models = {role: build(pair / role, Path(folder) / role) for role in ("target", "draft")}
        for role, rows, name in (
            ("target", 1, "target_step"),
            ("target", 5, "verify_5"),
            ("draft", 1, "draft_step"),
        ):
            rounds, bare = Rounds(models[role], context), Bare(pair / role)
            compare(
                report,
                name,
                rounds.decode if rows == 1 else lambda rounds=rounds: rounds.verify(4),  # type: ignore[misc]
                lambda bare=bare, rows=rows: bare_step(bare, context, rows),  # type: ignore[misc]
                options.runs,
            )
        pair_figures(report, models["target"], models["draft"], prompts, options.new_tokens)
    return report.exit_status()


if __name__ == "__main__":
    sys.exit(main())
