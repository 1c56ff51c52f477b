"""Clients of a served BLS that mix all kinds of requests and check every answer."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from cluster.processes import until
from support.triton_client import RefusedError, ask, stream, text
from support.triton_server import Server

BLS = "tensorrt_llm_bls"
CLIENTS = 64
LIMITS = (4, 12, 24)
CANCELLED_LIMIT = 300
_LONG = 300
# Bad requests, each with the server's error message.
_BAD: tuple[tuple[dict[str, Any], str], ...] = (
    ({"num_draft_tokens": 99}, "num_draft_tokens is 99, but this server allows at most"),
    ({"max_tokens": 0}, "max_tokens is 0"),
    ({"text_input": ""}, "text_input is empty"),
    ({"beam_width": 4}, "beam_width is 4"),
    ({"num_return_sequences": 3}, "num_return_sequences is 3"),
    ({"text_input": "x y " * 600}, "more than the limit of 511 for a prompt"),
)
MIX = {"stream": 40, "unary": 30, "long": 10, "cancel": 10, "bad": 10}
COUNTED = {
    "drafted": "specdec_draft_tokens_total",
    "accepted": "specdec_accepted_tokens_total",
    "generated": "specdec_generated_tokens_total",
    "rounds": "specdec_rounds_total",
    # The clients' count is the weighted sum of the histogram.
    "accepted_in_histogram": "specdec_accepted_tokens_total",
}


@dataclass
class Tally:
    """Counts of the requests and answers of clients.

    Attributes:
        did: number of requests by kind.
        counted: sums of the counts that the answers report, without cancelled answers.
        wrong: a message for every answer that was not as expected.
    """

    did: Counter[str] = field(default_factory=Counter)
    counted: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add the numbers of another tally."""
        self.did += other.did
        self.counted += other.counted
        self.wrong += other.wrong


class Baseline:
    """The answers of the target alone, requested once for each prompt and length."""

    def __init__(self, server: Server, prompts: list[str]) -> None:
        self.short = prompts
        whole = "\n".join(prompts)
        self.long = [whole[at : at + _LONG] for at in range(0, 4 * _LONG, _LONG)]
        kinds = [(p, n) for p in (*self.short, *self.long) for n in LIMITS]

        def plain(kind: tuple[str, int]) -> str:
            prompt, limit = kind
            return text(ask(server.url, "ensemble", text_input=prompt, max_tokens=limit, **_ALONE))

        with ThreadPoolExecutor(8) as pool:
            self._texts = dict(zip(kinds, pool.map(plain, kinds), strict=True))

    def text(self, prompt: str, limit: int) -> str:
        """Return the expected answer."""
        return self._texts[prompt, limit]


_ALONE = {"exclude_input_in_output": True}
_COUNTS = {"return_perf_metrics": True, "return_num_output_tokens": True}


class Addressed(Protocol):
    """A server whose address may change; every request reads it again."""

    @property
    def url(self) -> str:
        """`host:port` of the gRPC endpoint."""


class Client:
    """A client that sends one request after another, of kinds drawn from a mix."""

    def __init__(
        self, server: Addressed, baseline: Baseline, mix: dict[str, int], number: int
    ) -> None:
        self._server = server
        self._baseline = baseline
        self._kinds = random.Random(number).choices
        self._mix = mix
        self._numbers = random.Random(number + 1_000_000)
        self.tally = Tally()

    def request(self) -> None:
        """Send one request and check its answer."""
        (kind,) = self._kinds(list(self._mix), list(self._mix.values()))
        self.tally.did[kind] += 1
        try:
            getattr(self, f"_{kind}")()
        except RefusedError as error:
            self.tally.wrong.append(f"{kind} was refused: {error}")
        except Exception as error:  # noqa: BLE001 - a lost answer is a result, not the end
            self.tally.wrong.append(f"{kind} failed: {type(error).__name__} {error}")

    def _stream(self) -> None:
        self._right(self._numbers.choice(self._baseline.short), stream=True)

    def _unary(self) -> None:
        self._right(self._numbers.choice(self._baseline.short), stream=False)

    def _long(self) -> None:
        self._right(self._numbers.choice(self._baseline.long), stream=self._numbers.random() < 0.5)

    def _cancel(self) -> None:
        values = {"text_input": self._numbers.choice(self._baseline.short), "stream": True}
        with stream(
            self._server.url, BLS, max_tokens=CANCELLED_LIMIT, end_id=-1, **values
        ) as parts:
            next(iter(parts))
            parts.cancel()

    def _bad(self) -> None:
        values, expected = self._numbers.choice(_BAD)
        request = {"text_input": "def f(", "max_tokens": 4, **values}
        try:
            ask(self._server.url, BLS, stream=self._numbers.random() < 0.5, **request)
        except RefusedError as error:
            if expected in str(error) and "Traceback" not in str(error):
                return
            raise
        self.tally.wrong.append(f"{values} was not refused")

    def _right(self, prompt: str, *, stream: bool) -> None:
        limit = self._numbers.choice(LIMITS)
        values: dict[str, Any] = {"text_input": prompt, "max_tokens": limit, "stream": stream}
        if self._numbers.random() < 0.5:
            values["num_draft_tokens"] = self._numbers.randint(0, 8)
        parts = ask(self._server.url, BLS, **values, **_ALONE, **_COUNTS)
        actual, expected = text(parts), self._baseline.text(prompt, limit)
        if actual != expected:
            self.tally.wrong.append(f"{values} gave {actual!r}, not {expected!r}")
        counted = self.tally.counted
        counted["drafted"] += int(parts[-1]["total_draft_tokens"].item())
        counted["accepted"] += int(parts[-1]["total_accepted_draft_tokens"].item())
        histogram = parts[-1]["acceptance_histogram"].reshape(-1)
        counted["rounds"] += int(histogram.sum())
        counted["accepted_in_histogram"] += int((histogram * range(histogram.size)).sum())
        counted["generated"] += sum(int(part["num_output_tokens"].item()) for part in parts)


def drive(
    server: Server,
    baseline: Baseline,
    more: Callable[[int], bool],
    mix: dict[str, int] | None = None,
    first: int = 0,
) -> Tally:
    """Let each client send requests while `more` of its request count is true; return the sum.

    Args:
        first: number of the first client; clients with other numbers draw other requests.
    """

    def one(number: int) -> Tally:
        client = Client(server, baseline, mix or MIX, number)
        done = 0
        while more(done):
            client.request()
            done += 1
        return client.tally

    total = Tally()
    with ThreadPoolExecutor(CLIENTS) as pool:
        for tally in pool.map(one, range(first, first + CLIENTS)):
            total.add(tally)
    return total


def await_end(server: Server) -> None:
    """Wait until the server has no request in flight, so that its counters are complete.

    Raises:
        URLError: the server has ended.
        ClusterError: a request is still in flight after a minute.
    """
    until(
        lambda: server.metric("specdec_requests_in_flight") == 0,
        lambda: f"{server.metric('specdec_requests_in_flight')} answers are still in flight",
    )


def for_seconds(seconds: float) -> Callable[[int], bool]:
    """Return a condition that holds for the first request, then until the time has passed."""
    end = time.monotonic() + seconds
    return lambda done: done == 0 or time.monotonic() < end


def counts(server: Server) -> dict[str, float]:
    """Return the server's counters."""
    return {name: server.metric(metric) for name, metric in COUNTED.items()}
