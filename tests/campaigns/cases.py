"""Random prompts with options, and the answers of the target alone to them."""

import bisect
import json
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from campaigns.served_pairs import MAX_DRAFT_TOKENS, PAIR, Drafts, ServedPair
from specdec.images.backend.tensorrtllm.reference_engine.request import Request
from specdec.images.backend.tensorrtllm.reference_engine.sampling import Sampling

LONGEST = 32
# Share of the prompts that end shortly before the sequence limit.
_NEAR = 0.4
_THREADS = 16
_LETTERS = "abcdefghij ()=.,_\n\"'#é世界🙂🎉日本"


@dataclass
class Case:
    """One prompt with its options, the target's answer and the BLS's answer.

    Attributes:
        end: what ends the expected answer, such as a stop word.
        drafts: source of the draft tokens of its server.
        beside: number of other prompts in its request.
        trouble: the error of a request without an answer, else empty.
    """

    number: int
    values: dict[str, Any]
    expected: str
    end: str
    drafts: Drafts
    beside: int = 0
    parts: list[str] = field(default_factory=list)
    trouble: str = ""

    @property
    def equal(self) -> bool:
        """Return whether the parts form the target's text, in a single part without a stream."""
        whole = self.values["stream"] or len(self.parts) == 1
        return not self.trouble and bool(whole) and "".join(self.parts) == self.expected

    def complaint(self) -> str:
        """Return a message that shows the difference."""
        return (
            f"case {self.number} differs, beside {self.beside} others: {self.values}\n"
            f"  expected {self.expected!r}\n  actual   {self.parts!r} {self.trouble}"
        )


class Maker:
    """Draws cases for one served pair."""

    def __init__(self, served: ServedPair) -> None:
        lines = (PAIR / "prompts.jsonl").read_text("utf-8").splitlines()
        self._prompts = [str(json.loads(line)["prompt"]) for line in lines]
        self._served = served

    def cases(self, numbers: list[int]) -> list[Case]:
        """Return the cases with these numbers, made in parallel."""
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(self.case, numbers))

    def case(self, number: int) -> Case:
        """Return the case with the target's answer; a number always gives the same case."""
        numbers = random.Random(number)
        near = numbers.random() < _NEAR
        prompt = self._long_prompt(numbers) if near else self._served.spelt(self._prompt(numbers))
        ids = self._served.tokenizer.encode(prompt)
        values: dict[str, Any] = {"text_input": prompt, "exclude_input_in_output": True}
        rules: dict[str, Any] = {}
        if numbers.random() < 0.3:
            name = numbers.choice(["repetition", "repetition", "presence", "frequency"])
            penalty = numbers.random() + (name == "repetition")
            # The tensor has 32-bit floats.
            rules[f"{name}_penalty"] = values[f"{name}_penalty"] = float(np.float32(penalty))
        room = self._served.max_seq_len - len(ids)
        free = self._plain(ids, min(LONGEST, room), Sampling(**rules))
        end = numbers.choice(free) if numbers.random() < 0.4 else self._served.tokenizer.end_id
        values["end_id"] = rules["end_id"] = end
        if numbers.random() < 0.3:
            rules["min_length"] = numbers.randint(1, LONGEST // 2)
            values[self._served.minimum] = rules["min_length"]
        limit = numbers.randint(1, LONGEST)
        tokens = self._plain(ids, min(limit, room), Sampling(**rules))
        stops = self._stops(numbers, self._served.tokenizer.decode(tokens))
        expected, stopped = self._cut(ids, tokens, stops)
        if stops:
            values["stop_words"] = stops
        values |= self._way(numbers, limit)
        ended = "end token" if len(tokens) < min(limit, room) else "length limit"
        if len(tokens) == room < limit:
            ended = "sequence limit"
        kind = "stop word" if stopped else ended
        return Case(number, values, expected, kind, self._served.drafts)

    def _way(self, numbers: random.Random, limit: int) -> dict[str, Any]:
        """Return the length limit, and options that must not change the text."""
        return {
            "max_tokens": limit,
            "num_draft_tokens": numbers.randint(0, MAX_DRAFT_TOKENS),
            "stream": numbers.random() < 0.5,
            # Proposals from lookups have no logits.
            "use_draft_logits": numbers.random() < 0.3 and self._served.drafts != "Lookup",
        }

    def _prompt(self, numbers: random.Random) -> str:
        if numbers.random() < 0.5:
            text = numbers.choice(self._prompts)
            start = numbers.randrange(max(1, len(text) - 8))
            return text[start : start + numbers.randint(4, 120)]
        return "".join(numbers.choices(_LETTERS, k=numbers.randint(1, 60)))

    def _long_prompt(self, numbers: random.Random) -> str:
        """Return a prompt that ends at most twice the draft length before the sequence limit."""
        desired = self._served.max_seq_len - numbers.randint(1, 2 * MAX_DRAFT_TOKENS)
        text = ""
        while self._count(text) <= desired:
            text += self._served.spelt(self._prompt(numbers))
        # A longer text rarely has fewer tokens than a shorter one, but this happens.
        end = bisect.bisect_right(range(len(text)), desired, key=lambda e: self._count(text[:e]))
        while self._count(text[:end]) > desired:
            end -= 1
        return text[:end]

    def _count(self, text: str) -> int:
        return len(self._served.tokenizer.encode(text))

    def _stops(self, numbers: random.Random, text: str) -> list[str]:
        """Draw stop words: pieces from anywhere in the answer, and random texts."""
        drawn_stops = []
        for _ in range(numbers.choice([0, 0, 1, 2, 3])):
            if text and numbers.random() < 0.7:
                start = numbers.randrange(len(text))
                drawn_stops.append(text[start : start + numbers.randint(1, 7)])
            else:
                drawn = "".join(numbers.choices(_LETTERS, k=numbers.randint(2, 4)))
                drawn_stops.append(self._served.spelt(drawn))
        # A replacement character stands for part of a character, which no stop word can match.
        return [stop for stop in drawn_stops if "\ufffd" not in stop]

    def _plain(self, ids: list[int], limit: int, rules: Sampling) -> list[int]:
        return self._served.target.tokens(Request(np.array(ids, np.int64), limit, rules))

    def _cut(self, ids: list[int], tokens: list[int], stops: list[str]) -> tuple[str, bool]:
        """Return the text up to the end of its first stop word, and whether it has a stop word."""
        tokenizer = self._served.tokenizer
        decode, sequences = tokenizer.decode, tokenizer.word_list(stops)
        for count in range(1, len(tokens) + 1):
            text = decode(tokens[:count])
            whole = text.rstrip("\ufffd")
            ends = [whole.find(stop) + len(stop) for stop in stops if stop in whole]
            if ends:
                return whole[: min(ends)], True
            sequence = [*ids, *tokens[:count]]
            if any(sequence[-len(stop) :] == stop for stop in sequences):
                return text, True
        return decode(tokens), False
