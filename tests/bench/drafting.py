"""The speedup by lookups, by a draft model, and by both together.

`make bench NAME=drafting` prints one JSON line a figure and exits 1 when a goal is missed. The
engines are simulated, at 20 ms a step of the target and 2 ms of the draft, and return texts of
this repository (`baseline/texts.py`): the draft model is right in 70 of 100 positions. All sides
answer the same texts in one run, four clients at once. The figures about proposals that are cut by
their log probabilities use texts and drafts of the shipped pair (`baseline/survival.py`).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from time import perf_counter
from typing import Any

from tokenizers import Tokenizer

from bench.baseline import survival, texts
from bench.baseline.load import BLS, DRAFT_MS, TARGET_MS, serving, simulated
from bench.baseline.texts import CHAT, CODE_EDIT, RETRIEVAL, Text
from specdec.triton.plan import DraftLengths
from specdec.triton.repository import ModelPlan, RepositoryPlan, render
from support import bls
from support.bench_report import Report
from support.shipped_pair import LIMITS, MAX_DRAFT_TOKENS, PAIR, build
from support.triton_client import ask
from support.triton_client import text as text_of
from support.triton_server import Server

MOST = 16
ACCEPTED_PERCENT = 70
# Minimum tokens of a client in a measurement, on average: shorter answers are repeated.
TOKENS = 400
KINDS = (CODE_EDIT, RETRIEVAL, CHAT, texts.JSON)
PLAIN = "plain"
# Minimum speed as a share of plain speed, by side and kind of text.
_GOALS = {
    ("ngram", CODE_EDIT): 1.5,
    ("ngram", RETRIEVAL): 1.5,
    ("ngram", CHAT): 0.97,
    ("ngram_stream", CHAT): 0.97,
}
# Minimum speed of lookups and draft model together, as a share of the better of the two.
_MIXED_GOALS = {CODE_EDIT: 1.10}
_MIXED_GOAL = 0.97
_LOOKUP_TOKENS = 8192
_REFERENCE_TOKENS = 64
_REFERENCE_PROMPTS = 8


@dataclass(frozen=True)
class Side:
    """A way to draft: the changes of the plan, and whether it has a draft model."""

    changes: dict[str, object]
    draft: bool = True


SIDES = {
    "ngram": Side({"lookup_min_match": 2, "adaptive": DraftLengths(0, MOST)}, draft=False),
    "ngram_fixed": Side({"lookup_min_match": 2}, draft=False),
    "draft_target": Side({"draft_tokens": 4}),
    "adaptive": Side({"adaptive": DraftLengths(0, MOST), "draft_tokens": 4}),
    "mixed": Side(
        {"lookup_min_match": 2, "adaptive": DraftLengths(0, MOST), "draft_tokens": 4},
    ),
}


@dataclass(frozen=True)
class Answered:
    """What a server did for some texts: seconds, tokens and steps of the target."""

    seconds: float
    tokens: int
    steps: int


def main() -> int:
    """Run the bench; return 0 if every goal is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        tokenizer = texts.tokenizer(Path(folder) / "tokenizer")
        given = texts.texts()
        _write(Path(folder) / "texts.json", given, tokenizer)
        servers = {
            name: stack.enter_context(_server(Path(folder), side)) for name, side in SIDES.items()
        }
        _compare(report, servers, given, tokenizer, options.runs)
        _lookups(report, Path(folder) / "long.json", tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        survival.compare(report, Path(folder), options.runs)
        _reference(report, Path(folder), options.runs)
    return report.exit_status()


def _compare(
    report: Report,
    servers: dict[str, Server],
    given: list[Text],
    tokenizer: Tokenizer,
    runs: int,
) -> None:
    """Print each side's speed as a share of plain speed, and its tokens per target step.

    All servers answer all texts once before the first measurement, so that policies know the
    costs.
    """
    for server in servers.values():
        for kind in KINDS:
            _answered(server, [text for text in given if text.kind == kind], tokenizer)
    shares: dict[tuple[str, str], list[float]] = defaultdict(list)
    steps: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(runs):
        for kind in KINDS:
            chosen = [text for text in given if text.kind == kind]
            plain = _answered(servers["ngram"], chosen, tokenizer, num_draft_tokens=0)
            for name, server in servers.items():
                did = _answered(server, chosen, tokenizer)
                shares[name, kind].append(plain.seconds / did.seconds)
                steps[name, kind].append(did.tokens / did.steps)
            streamed = _answered(servers["ngram"], chosen, tokenizer, stream=True)
            shares["ngram_stream", kind].append(plain.seconds / streamed.seconds)
    for (name, kind), values in shares.items():
        report.figure(
            f"drafting.{kind}_{name}_of_plain",
            values,
            "ratio",
            goal=_GOALS.get((name, kind)),
            better="higher",
        )
    for (name, kind), values in steps.items():
        report.figure(f"drafting.{kind}_{name}_tokens_a_step", values, "tokens", better="higher")
    _mixed(report, shares)


def _mixed(report: Report, shares: dict[tuple[str, str], list[float]]) -> None:
    """Print the speed of both sources together, as a share of the better of the two."""
    for kind in KINDS:
        parts = zip(shares["ngram", kind], shares["adaptive", kind], strict=True)
        ratios = [
            both / max(alone) for both, alone in zip(shares["mixed", kind], parts, strict=True)
        ]
        goal = _MIXED_GOALS.get(kind, _MIXED_GOAL)
        report.figure(
            f"drafting.{kind}_mixed_of_better_part", ratios, "ratio", goal=goal, better="higher"
        )


def _reference(report: Report, folder: Path, runs: int) -> None:
    """Print the speed of lookups on the real Reference engine, as a share of plain speed."""
    target = build(folder, "target", "target", mode="draft_tokens_external")
    plan = RepositoryPlan(
        version="0.19.0",
        tokenizer_dir=str(PAIR / "target"),
        target=ModelPlan(str(target), (0,), max_tokens_in_paged_kv_cache=16384),
        max_batch_size=16,
        rows_per_call=16,
        lookup_min_match=2,
        adaptive=DraftLengths(0, MAX_DRAFT_TOKENS),
        draft_tokens=MAX_DRAFT_TOKENS,
        max_draft_tokens=MAX_DRAFT_TOKENS,
        max_seq_len=LIMITS["maxSeqLen"],
    )
    lines = (PAIR / "prompts.jsonl").read_text("utf-8").splitlines()[:_REFERENCE_PROMPTS]
    prompts = [json.loads(line)["prompt"] for line in lines]
    shares = []
    with serving(render(plan)) as server:
        for _ in range(runs):
            seconds = []
            for more in ({"num_draft_tokens": 0}, {}):
                begun = perf_counter()
                for prompt in prompts:
                    values = {"text_input": prompt, "max_tokens": _REFERENCE_TOKENS, "end_id": -1}
                    ask(server.url, BLS, **values, **more)
                seconds.append(perf_counter() - begun)
            shares.append(seconds[0] / seconds[1])
    report.figure("drafting.reference_engine_ngram_of_plain", shares, "ratio", better="higher")


def _answered(server: Server, chosen: list[Text], tokenizer: Tokenizer, **more: float) -> Answered:
    """Let one client per text request it, until the clients have `TOKENS` tokens on average.

    Raises:
        RuntimeError: an answer differs from its text.
    """
    lengths = [len(tokenizer.encode(text.answer).ids) for text in chosen]
    repeats = math.ceil(TOKENS / mean(lengths))

    def answer(text: Text, length: int) -> None:
        values = {"text_input": text.prompt, "max_tokens": length, "end_id": -1, **more}
        for _ in range(repeats):
            output = text_of(ask(server.url, BLS, exclude_input_in_output=True, **values))
            if output != text.answer:
                raise RuntimeError(f"the answer differs from the text: {output!r:.300}")

    before = _counts(server)
    begun = perf_counter()
    with ThreadPoolExecutor(len(chosen)) as pool:
        list(pool.map(answer, chosen, lengths))
    seconds = perf_counter() - begun
    accepted, generated = (b - a for a, b in zip(before, _counts(server), strict=True))
    # Each token is an accepted draft token, or the one token that the target adds in each step.
    return Answered(seconds, int(generated), int(generated - accepted))


def _counts(server: Server) -> list[float]:
    """Return the numbers of accepted draft tokens and of generated tokens."""
    return [server.metric(f"specdec_{name}_tokens_total") for name in ("accepted", "generated")]


@contextmanager
def _server(folder: Path, side: Side) -> Iterator[Server]:
    settings: dict[str, Any] = {"draft_tokens": MOST, **side.changes}
    plan = RepositoryPlan(
        version="0.19.0",
        tokenizer_dir=str(folder / "tokenizer"),
        target=ModelPlan(str(folder), (0,), step_latency_ms=TARGET_MS),
        draft=ModelPlan(str(folder), (0,), step_latency_ms=DRAFT_MS) if side.draft else None,
        max_batch_size=16,
        rows_per_call=16,
        **settings,
        max_draft_tokens=MOST,
        draft_ahead=1 if side.draft else 0,
        max_seq_len=4096,
    )
    outputs = {"texts": str(folder / "texts.json"), "accepted_percent": str(ACCEPTED_PERCENT)}
    files = simulated(render(plan), "Shared", **outputs)
    with serving(files) as server:
        yield server


def _write(file: Path, given: list[Text], tokenizer: Tokenizer) -> None:
    """Write the tokens of each prompt and answer, which the simulated engines return."""
    listed = [
        tokenizer.encode(text.prompt).ids + tokenizer.encode(text.answer).ids for text in given
    ]
    file.write_text(json.dumps(listed), "utf-8")


def _lookups(report: Report, file: Path, tokenizer: Tokenizer) -> None:
    """Print the time of a lookup in texts of 8 192 tokens, and the automaton's memory."""
    code = sorted((texts.ROOT / "operator" / "specdec").rglob("*.py"))
    prose = sorted((texts.ROOT / "docs").glob("*.md"))
    listed = [
        tokenizer.encode("".join(source.read_text("utf-8") for source in chosen[:60])).ids
        for chosen in (code, prose)
    ]
    numbers = random.Random(1)
    listed.append([1] * _LOOKUP_TOKENS)
    listed.append([numbers.randrange(2) for _ in range(_LOOKUP_TOKENS)])
    file.write_text(json.dumps([ids[:_LOOKUP_TOKENS] for ids in listed]), "utf-8")
    costs = bls.lookup_costs(file)
    slow = [sorted(cost["microseconds"])[len(cost["microseconds"]) * 99 // 100] for cost in costs]
    report.figure("drafting.lookup_p99_us", [max(slow)], "us")
    report.against_machine("drafting.lookup_p99", [max(slow) / 1e6], goal=0.004)
    report.figure(
        "drafting.lookup_bytes_a_token",
        [max(cost["bytes_a_token"] for cost in costs)],
        "bytes",
        goal=64.0,
    )


if __name__ == "__main__":
    sys.exit(main())
