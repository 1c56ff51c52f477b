"""Sampled answers follow the target's distribution, whatever the draft proposes.

`make campaign NAME=sampling` draws a million tokens for each case through the BLS of a real server
and the engine's own sampling and verification, and tests them against the target's probabilities
by chi-square. Tokens are counted by the two tokens before them. In a correct sample only the later
of the two matters. If random numbers repeat in every round, the earlier token matters too.
"""

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count as count_from
from itertools import islice
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from campaigns import letters, serving_tables
from campaigns.served_pairs import Drafts
from campaigns.table import Floats
from specdec.images.backend.tensorrtllm.reference_engine.sampling import Sampling, probabilities
from support.bench_report import Report
from support.triton_client import ask
from support.triton_server import Server

Counts = npt.NDArray[np.int64]

VOCABULARY = 7
END = 0
PROMPT = (1, 2)
CLIENTS = 4
ANSWER = 400
DRAWS = 1_000_000
P_VALUE = 0.01
# With fewer expected tokens, a cell's term no longer follows a chi-square distribution.
_FEWEST = 5.0


@dataclass(frozen=True)
class Case:
    """A kind of request.

    Attributes:
        by_logits: acceptance by the two models' logits, else by tokens.
        length: draft tokens a round, 0 for target-only runs, None for the adaptive policy.
        minimum: number of tokens before the end token is allowed.
        drafts: source of the draft tokens.
        alone: one answer at a time, so that the policy extends proposals by log probabilities.
    """

    name: str
    by_logits: bool
    length: int | None
    rules: Sampling
    minimum: int = 0
    drafts: Drafts = "Model"
    alone: bool = False


_SOFT = Sampling(top_p=1.0, temperature=0.8)
CASES = (
    Case("logits_1", True, 1, _SOFT),
    Case("logits_4", True, 4, _SOFT),
    Case("logits_4_cut", True, 4, Sampling(top_k=5, top_p=0.9)),
    Case("logits_3_minimum", True, 3, _SOFT, minimum=3),
    Case("tokens_4", False, 4, _SOFT),
    Case("adaptive", False, None, _SOFT),
    Case("adaptive_alone", False, None, _SOFT, alone=True),
    Case("target_only", False, 0, _SOFT),
    Case("lookup_4", False, 4, _SOFT, drafts="Lookup"),
    Case("lookup_4_cut", False, 4, Sampling(top_k=5, top_p=0.9), drafts="Lookup"),
    Case("both_4", False, 4, _SOFT, drafts="Both"),
    Case("both_4_minimum", False, 4, _SOFT, minimum=3, drafts="Both"),
)


def tables(seed: int = 5) -> tuple[Floats, Floats]:
    """Return logits [vocabulary, vocabulary] of a target, and of a draft that often agrees."""
    random = np.random.default_rng(seed)
    target = random.standard_normal((VOCABULARY, VOCABULARY))
    draft = target + 0.8 * random.standard_normal((VOCABULARY, VOCABULARY))
    # The draft gives the end token a much higher probability than the target does.
    target[:, END] -= 0.5
    draft[:, END] += 1.0
    return target.astype(np.float32), draft.astype(np.float32)


def answers(
    case: Case, server: Server, numbers: list[int], *, ignores_seed: bool = False
) -> list[list[int]]:
    """Return the tokens of answers, including the end token of those that end early.

    Args:
        numbers: the numbers of the answers, which are also their seeds.
        ignores_seed: the engines sample with one seed for all calls of an answer.
    """
    prompts = [
        serving_tables.prompt(number, PROMPT, VOCABULARY, ignores_seed=ignores_seed)
        for number in numbers
    ]
    values = {
        **{name: [[value]] * len(numbers) for name, value in _values(case).items()},
        "text_input": [[letters.text(prompt)] for prompt in prompts],
        "random_seed": np.array(numbers, np.uint64)[:, None],
    }
    parts: list[list[str]] = [[] for _ in numbers]
    for part in ask(server.url, "tensorrt_llm_bls", **values):
        parts[int(part["batch_index"].item())].append(part["text_output"].item().decode())
    sequences = [letters.tokens("".join(texts)) for texts in parts]
    return [tokens if len(tokens) == ANSWER else [*tokens, END] for tokens in sequences]


def _values(case: Case) -> dict[str, Any]:
    values: dict[str, Any] = {
        "max_tokens": ANSWER,
        "min_length": case.minimum,
        "use_draft_logits": case.by_logits,
        # A streamed answer without draft tokens uses target-only runs, in separate calls.
        "stream": case.length == 0,
        "exclude_input_in_output": True,
        "top_p": case.rules.top_p,
        "temperature": case.rules.temperature,
    }
    if case.length is not None:
        values["num_draft_tokens"] = case.length
    if case.rules.top_k:
        values["top_k"] = case.rules.top_k
    return values


def count(case: Case, server: Server, draws: int) -> Counts:
    """Return the counts of at least `draws` tokens over many seeds; see `counts_of`."""
    counts = counts_of(case, [])
    numbers = count_from()
    clients, rows = (1, 1) if case.alone else (CLIENTS, serving_tables.ROWS)
    with ThreadPoolExecutor(clients) as pool:
        while counts.sum() < draws:
            groups = [list(islice(numbers, rows)) for _ in range(clients)]
            for sequences in pool.map(lambda group: answers(case, server, group), groups):
                counts += counts_of(case, sequences)
    return counts


def counts_of(case: Case, sequences: list[list[int]]) -> Counts:
    """Return the counts [token before the last, last token, drawn token] of these answers."""
    counts = np.zeros((VOCABULARY, VOCABULARY, VOCABULARY), np.int64)
    for sequence in sequences:
        # The end token is not allowed before `minimum` tokens, so the distribution differs.
        tokens = np.array([*PROMPT, *sequence][case.minimum :])
        np.add.at(counts, (tokens[:-2], tokens[1:-1], tokens[2:]), 1)
    return counts


def p_value(case: Case, counts: Counts) -> float:
    """Return the probability that a correct sample is at least this far from the target."""
    target, _ = tables()
    target_shares = np.array([probabilities(case.rules, row) for row in target])
    expected = target_shares[None] * counts.sum(-1, keepdims=True)
    if counts[np.broadcast_to(target_shares[None] == 0, counts.shape)].any():
        return 0.0
    cells = expected >= _FEWEST
    # Tokens that are too rare for a cell of their own share one cell per context.
    rare = np.where(cells, 0, expected).sum(-1)
    seen = np.where(cells, 0, counts).sum(-1)
    statistic = ((counts - expected)[cells] ** 2 / expected[cells]).sum()
    statistic += ((seen - rare)[rare >= _FEWEST] ** 2 / rare[rare >= _FEWEST]).sum()
    groups = cells.sum(-1) + (rare >= _FEWEST)
    return tail(float(statistic), int(np.maximum(groups - 1, 0).sum()))


def tail(statistic: float, freedom: int) -> float:
    """Return the upper tail of chi-square by the approximation of Wilson and Hilferty (1931)."""
    spread = 2 / (9 * freedom)
    normal = ((statistic / freedom) ** (1 / 3) - 1 + spread) / spread**0.5
    return 1 - NormalDist().cdf(normal)


def main() -> int:
    """Run every case; return 1 if a sample does not follow the target's distribution."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.sampling", description=__doc__)
    parser.add_argument("--draws", type=int, default=DRAWS, help="tokens a case (%(default)s)")
    names = [case.name for case in CASES]
    parser.add_argument("--case", action="append", choices=names, help="only this one; repeatable")
    options = parser.parse_args()
    draws, chosen = options.draws, options.case or names
    report = Report()
    begun = time.monotonic()
    for case in (case for case in CASES if case.name in chosen):
        with serving_tables.serving(*tables(), case.drafts) as server:
            counts = count(case, server, draws)
            name = f"sampling.{case.name}"
            report.figure(f"{name}_draws", [int(counts.sum())], "tokens")
            report.figure(f"{name}_p", [p_value(case, counts)], "", goal=P_VALUE, better="higher")
    report.figure("sampling.seconds", [time.monotonic() - begun], "s")
    return report.exit_status()


if __name__ == "__main__":
    raise SystemExit(main())
