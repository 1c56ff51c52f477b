"""Sampled answers follow the target's distribution, whatever the draft proposes.

`make campaign NAME=sampling` draws a million tokens for each case through the BLS's loop and the
engine's own sampling and verification, and tests them against the target's probabilities by
chi-square. A token is counted under the two before it. Given the one before it, a right sample
does not care about the other; numbers that return in every round make the counts clump.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from bench.report import Report
from campaigns.table import Floats, TableEngine
from specdec.payload.backend.tensorrtllm.reference_engine.sampling import Sampling, probabilities
from unit.triton.payload import load

task_module = load("specdec_bls.task")
speculation = load("specdec_bls.speculation")

Counts = npt.NDArray[np.int64]

VOCABULARY = 7
END = 0
ANSWER = 400
DRAWS = 1_000_000
P_VALUE = 0.01
# Fewer expected in a cell, and its share of chi-square is not one any more.
_FEWEST = 5.0


@dataclass(frozen=True)
class Case:
    """What is asked.

    Attributes:
        by_logits: acceptance by the two models' logits, else by tokens.
        length: draft tokens a round, 0 for the target alone in stretches.
        minimum: tokens before the end may come.
    """

    name: str
    by_logits: bool
    length: int
    rules: Sampling
    minimum: int = 0


_SOFT = Sampling(top_p=1.0, temperature=0.8)
CASES = (
    Case("logits_1", True, 1, _SOFT),
    Case("logits_4", True, 4, _SOFT),
    Case("logits_4_cut", True, 4, Sampling(top_k=5, top_p=0.9)),
    Case("logits_3_minimum", True, 3, _SOFT, minimum=3),
    Case("tokens_4", False, 4, _SOFT),
    Case("stretches", False, 0, _SOFT),
)
STRETCH = 3


def tables(seed: int = 5) -> tuple[Floats, Floats]:
    """Logits [vocabulary, vocabulary] of a target, and of a draft that often agrees with it."""
    random = np.random.default_rng(seed)
    target = random.standard_normal((VOCABULARY, VOCABULARY))
    draft = target + 0.8 * random.standard_normal((VOCABULARY, VOCABULARY))
    # An end that the draft likes far more than the target does.
    target[:, END] -= 0.5
    draft[:, END] += 1.0
    return target.astype(np.float32), draft.astype(np.float32)


def answer(case: Case, target: TableEngine, draft: TableEngine, seed: int) -> list[int]:
    """Tokens of one answer behind its prompt, the end included where one came."""
    common = {"end_id": np.array([[END]], np.int32)}
    rules = case.rules
    if rules.top_k:
        common["runtime_top_k"] = np.array([[rules.top_k]], np.int32)
    common["runtime_top_p"] = np.array([[rules.top_p]], np.float32)
    common["temperature"] = np.array([[rules.temperature]], np.float32)
    task = task_module.Task(
        prompt=(1, 2),
        max_tokens=ANSWER,
        draft_tokens=case.length,
        min_tokens=case.minimum,
        end_id=END,
        common=common,
        seed=seed,
        use_draft_logits=case.by_logits,
    )
    generation = speculation.Generation(task, target, draft)
    while True:
        if case.length:
            chunk = generation.step(case.length)
        else:
            *_, chunk = generation.plain(STRETCH)
        if chunk.finished:
            break
    ended = len(generation.tokens) < ANSWER
    return [*generation.tokens, END] if ended else list(generation.tokens)


def count(case: Case, draws: int) -> Counts:
    """Counts [before the last, last, drawn] of at least so many tokens, of many seeds."""
    target, draft = (TableEngine(table) for table in tables())
    counts = np.zeros((VOCABULARY, VOCABULARY, VOCABULARY), np.int64)
    drawn = seed = 0
    while drawn < draws:
        # Where the end may not come yet, the distribution is another one.
        tokens = np.array([1, 2, *answer(case, target, draft, seed)][case.minimum :])
        np.add.at(counts, (tokens[:-2], tokens[1:-1], tokens[2:]), 1)
        drawn += tokens.size - 2
        seed += 1
    return counts


def p_value(case: Case, counts: Counts) -> float:
    """How likely a right sample is to lie as far from the target as this one."""
    target, _ = tables()
    wanted = np.array([probabilities(case.rules, row) for row in target])
    expected = wanted[None] * counts.sum(-1, keepdims=True)
    if counts[np.broadcast_to(wanted[None] == 0, counts.shape)].any():
        return 0.0
    cells = expected >= _FEWEST
    # What is too rare for a cell of its own makes one cell with the rest of its context.
    rest = np.where(cells, 0, expected).sum(-1)
    seen = np.where(cells, 0, counts).sum(-1)
    statistic = ((counts - expected)[cells] ** 2 / expected[cells]).sum()
    statistic += ((seen - rest)[rest >= _FEWEST] ** 2 / rest[rest >= _FEWEST]).sum()
    groups = cells.sum(-1) + (rest >= _FEWEST)
    return tail(float(statistic), int(np.maximum(groups - 1, 0).sum()))


def tail(statistic: float, freedom: int) -> float:
    """Upper tail of chi-square by the cube root's normality (Wilson and Hilferty 1931)."""
    spread = 2 / (9 * freedom)
    normal = ((statistic / freedom) ** (1 / 3) - 1 + spread) / spread**0.5
    return 1 - NormalDist().cdf(normal)


def main() -> int:
    """Run every case; 1 when one of them is no sample of the target."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.sampling", description=__doc__)
    parser.add_argument("--draws", type=int, default=DRAWS, help="tokens a case (%(default)s)")
    draws = parser.parse_args().draws
    report = Report()
    begun = time.monotonic()
    for case in CASES:
        counts = count(case, draws)
        name = f"sampling.{case.name}"
        report.figure(f"{name}_draws", [int(counts.sum())], "tokens")
        report.figure(f"{name}_p", [p_value(case, counts)], "", goal=P_VALUE, better="higher")
    report.figure("sampling.seconds", [time.monotonic() - begun], "s")
    return report.exit_status()


if __name__ == "__main__":
    raise SystemExit(main())
