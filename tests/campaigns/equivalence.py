"""Greedy answers of the BLS equal the baseline's, whatever is asked.

`make campaign NAME=equivalence` answers 10 000 random prompts twice: by the target alone, token by
token, and by the BLS's own request parser and loop over the same engine. Options are drawn so that
they bite: stop words and ends are taken out of the very answer that comes, stop words across token
borders and over cut characters too, and limits fall inside rounds. Engines are the shipped pair,
and random ones of which every choice is a near tie.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from bench.report import Report
from campaigns.inprocess import InProcess
from specdec.payload.backend.tensorrtllm.reference_engine.request import Request
from specdec.payload.backend.tensorrtllm.reference_engine.sampling import Sampling
from unit.engine.engines import PAYLOAD, build, open_engine
from unit.engine.oracle import Tiny
from unit.triton.loop import Meter
from unit.triton.payload import load

answer_module = load("specdec_bls.answer")
policy = load("specdec_bls.policy")
request_module = load("specdec_bls.request")
shared = load("specdec_text")

CASES = 10_000
LONGEST = 32
THREADS = 8
_PAIR = PAYLOAD / "pair"
_LETTERS = "abcdefghij ()=.,_\n\"'#é世界🙂🎉日本"
_TWINS = Tiny(vocab=96, twins=1e-7, seed=2)
_OTHER_TWINS = Tiny(vocab=96, twins=1e-7, seed=2, gain=8.02)


class Letters:
    """A character a token; enough of a tokenizer for engines of random weights."""

    size = 96
    end_id = 0
    pad_id = 0

    def encode(self, text: str) -> list[int]:
        """Token ids."""
        return [ord(letter) % self.size for letter in text]

    def words(self, words: list[str]) -> list[list[int]]:
        """Token ids of words."""
        return [[ord(letter) - 0x100 for letter in word] for word in words if word]

    def decode(self, ids: Any) -> str:
        """Text; one character for every token, none of them shared with another."""
        return "".join(chr(0x100 + token) for token in ids)


@dataclass(frozen=True)
class World:
    """A target, a draft and the tokenizer of both."""

    name: str
    target: InProcess
    draft: InProcess
    tokenizer: Any


@contextmanager
def worlds() -> Iterator[list[World]]:
    """The shipped pair, and near ties."""
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        root = Path(folder)
        pair = [InProcess(open_engine(build(_PAIR / r, root / r))) for r in ("target", "draft")]
        twins = [
            InProcess(open_engine(build(tiny.write(root / f"{name}-hf"), root / name)))
            for name, tiny in (("twins", _TWINS), ("others", _OTHER_TWINS))
        ]
        found = [
            World("pair", pair[0], pair[1], shared.Tokenizer(str(_PAIR / "target"))),
            World("twins", twins[0], twins[1], Letters()),
        ]
        try:
            yield found
        finally:
            for engine in (*pair, *twins):
                engine.close()


@dataclass
class Case:
    """One prompt, what is asked with it, and the two answers."""

    number: int
    values: dict[str, Any]
    lengths: Any
    wanted: str
    found: list[str] = field(default_factory=list)
    ends: set[str] = field(default_factory=set)
    meter: Meter = field(default_factory=Meter)

    @property
    def equal(self) -> bool:
        """Whether the answer's parts are the baseline's text."""
        whole = self.values.get("stream") or len(self.found) == 1
        return bool(whole) and "".join(self.found) == self.wanted


class Restless:
    """Rounds of any length and stretches without a draft, as an adaptive policy may order."""

    def __init__(self, numbers: random.Random) -> None:
        self._numbers = numbers

    def length(self) -> int:
        """Draft tokens of the next round."""
        return self._numbers.choice([0, 1, 2, 3, 5, 8])

    def plain_tokens(self) -> int:
        """Tokens of a stretch."""
        return self._numbers.randint(1, 6)

    def round(self, drafted: int, accepted: int, draft: float, verify: float) -> None:
        """Nothing is learnt."""

    def plain(self, tokens: int, seconds: float) -> None:
        """Nothing is learnt."""

    def close(self) -> None:
        """Nothing is held."""


class Maker:
    """Draws cases for one world."""

    def __init__(self, world: World, prompts: list[str]) -> None:
        self._world = world
        self._prompts = prompts

    def case(self, number: int) -> Case:
        """The case of a number, always the same one, with the baseline's answer."""
        numbers = random.Random(number)
        prompt = self._prompt(numbers)
        ids = self._world.tokenizer.encode(prompt)
        values: dict[str, Any] = {"text_input": prompt, "exclude_input_in_output": True}
        rules: dict[str, Any] = {}
        if numbers.random() < 0.25:
            rules["repetition_penalty"] = values["repetition_penalty"] = 1.0 + numbers.random()
        free = self._plain(ids, LONGEST, Sampling(**rules))
        end = numbers.choice(free) if numbers.random() < 0.4 else self._world.tokenizer.end_id
        values["end_id"] = rules["end_id"] = end
        if numbers.random() < 0.3:
            values["min_length"] = rules["min_length"] = numbers.randint(1, LONGEST // 2)
        limit = numbers.randint(1, LONGEST)
        tokens = self._plain(ids, limit, Sampling(**rules))
        stops = self._stops(numbers, self._world.tokenizer.decode(tokens))
        wanted, stopped = self._cut(ids, tokens, stops)
        if stops:
            values["stop_words"] = stops
        values |= self._way(numbers, limit)
        lengths = Restless(numbers) if numbers.random() < 0.5 else None
        case = Case(number, values, lengths, wanted)
        ended = len(tokens) < limit
        case.ends = {"stop word"} if stopped else {"end token" if ended else "length limit"}
        return case

    def _way(self, numbers: random.Random, limit: int) -> dict[str, Any]:
        """How the answer is to be made, which changes nothing about it."""
        return {
            "max_tokens": limit,
            "num_draft_tokens": numbers.randint(0, 8),
            "stream": numbers.random() < 0.5,
            "use_draft_logits": numbers.random() < 0.3,
        }

    def _prompt(self, numbers: random.Random) -> str:
        if numbers.random() < 0.5:
            text = numbers.choice(self._prompts)
            start = numbers.randrange(max(1, len(text) - 8))
            return text[start : start + numbers.randint(4, 120)]
        return "".join(numbers.choices(_LETTERS, k=numbers.randint(1, 60)))

    def _stops(self, numbers: random.Random, text: str) -> list[str]:
        """Words of the answer, of any length from anywhere, and others."""
        words = []
        for _ in range(numbers.choice([0, 0, 1, 2, 3])):
            if text and numbers.random() < 0.7:
                start = numbers.randrange(len(text))
                words.append(text[start : start + numbers.randint(1, 7)])
            else:
                words.append("".join(numbers.choices(_LETTERS, k=numbers.randint(2, 4))))
        # A lone replacement character stands for bytes that no word can name.
        known = self._world.name == "pair"
        return [w for w in words if "\ufffd" not in w and (known or min(w) >= "\u0100")]

    def _plain(self, ids: list[int], limit: int, rules: Sampling) -> list[int]:
        return self._world.target.tokens(Request(np.array(ids, np.int64), limit, rules))

    def _cut(self, ids: list[int], tokens: list[int], stops: list[str]) -> tuple[str, bool]:
        """Text up to the first stop word, by text or by tokens, and whether there was one."""
        decode, words = self._world.tokenizer.decode, self._world.tokenizer.words(stops)
        for count in range(1, len(tokens) + 1):
            text = decode(tokens[:count])
            whole = text.rstrip("\ufffd")
            ends = [whole.find(stop) + len(stop) for stop in stops if stop in whole]
            if ends:
                return whole[: min(ends)], True
            sequence = [*ids, *tokens[:count]]
            if any(sequence[-len(word) :] == word for word in words):
                return text, True
        return decode(tokens), False


def speculate(world: World, case: Case) -> Case:
    """Let the BLS answer a case."""
    server = request_module.Server(4, 8, 384, True, True, False, "min_length", ())
    given = {name: _tensor(value) for name, value in case.values.items()}
    (task,) = request_module.parse(given, server, world.tokenizer).tasks
    lengths = policy.FixedLength(task.draft_tokens) if case.lengths is None else case.lengths
    answer = answer_module.Answer(
        task, world.target, world.draft, world.tokenizer, lengths, case.meter, lambda: False
    )
    case.found = [part.text for part in answer.parts()]
    return case


def _tensor(value: Any) -> Any:
    values = value if isinstance(value, list) else [value]
    if isinstance(values[0], str):
        return np.array([[text.encode() for text in values]], object)
    return np.array([values])


def run(count: int, first: int = 0) -> Iterator[Case]:
    """Cases in order, half of them for each world."""
    lines = (_PAIR / "prompts.jsonl").read_text("utf-8").splitlines()
    prompts = [str(json.loads(line)["prompt"]) for line in lines]
    with worlds() as found, ThreadPoolExecutor(THREADS) as pool:
        makers = [(world, Maker(world, prompts)) for world in found]

        def one(number: int) -> Case:
            world, maker = makers[number % len(makers)]
            return speculate(world, maker.case(number))

        yield from pool.map(one, range(first, first + count))


def main() -> int:
    """Run; 1 when an answer differs."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.equivalence", description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES, help="prompts (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first (%(default)s)")
    options = parser.parse_args()
    report, begun = Report(), time.monotonic()
    totals: Counter[str] = Counter()
    for case in run(options.cases, options.first):
        totals["differing"] += not case.equal
        totals["accepted"] += case.meter.accepted
        totals["drafted"] += case.meter.drafted
        totals["tokens"] += case.meter.generated
        totals["streamed"] += bool(case.values["stream"])
        totals.update(f"ended by {end}" for end in case.ends)
        if not case.equal:
            print(f"case {case.number} differs: {case.values}", file=sys.stderr)
            print(f"  wanted {case.wanted!r}\n  found  {case.found!r}", file=sys.stderr)
    report.figure("equivalence.prompts", [options.cases], "prompts")
    report.figure("equivalence.differing", [totals.pop("differing")], "prompts", goal=0)
    for name, value in sorted(totals.items()):
        report.figure(f"equivalence.{name.replace(' ', '_')}", [value], "")
    report.figure("equivalence.seconds", [time.monotonic() - begun], "s")
    return report.exit_status()


if __name__ == "__main__":
    raise SystemExit(main())
