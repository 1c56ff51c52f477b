"""Sends cases, with several prompts a request and several clients; sorts parts by prompt."""

import random
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from campaigns.cases import Case
from support.triton_client import ask
from support.triton_server import Server

BLS = "tensorrt_llm_bls"
COUNTED = {
    "drafted": "specdec_draft_tokens_total",
    "accepted": "specdec_accepted_tokens_total",
    "tokens": "specdec_generated_tokens_total",
    "rounds": "specdec_rounds_total",
    "early_rounds": "specdec_early_rounds_total",
}
# Metric of the draft tokens from lookups that the target accepted.
_LOOKED_UP = re.compile(
    r'^specdec_accepted_tokens_by_source_total\{.*source="lookup".*\} (\S+)$', re.MULTILINE
)
_MOST_PROMPTS = 4
# Neutral values for a prompt that lacks an option of another prompt in its request.
_NEUTRAL: dict[str, Any] = {
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "min_length": 0,
    "min_tokens": 0,
}


def counts(server: Server) -> dict[str, float]:
    """Return the server's counters; each is 0 before the first answer."""
    looked_up = _LOOKED_UP.findall(server.get_metrics())
    counted = {name: server.metric(metric) for name, metric in COUNTED.items()}
    return counted | {"looked_up": sum(map(float, looked_up))}


class Asker:
    """Clients of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def ask(self, cases: list[Case], clients: int) -> None:
        """Send all cases with `clients` clients; each sends one request after another."""
        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(self._one, requests(cases)))

    def _one(self, cases: list[Case]) -> None:
        # Without a requested length the server chooses it, and may run target-only for a while.
        values = together(cases, lengths=random.Random(cases[0].number).random() < 0.75)
        try:
            for part in ask(self._server.url, BLS, **values):
                row = int(part["batch_index"].item())
                cases[row].parts.append(part["text_output"].item().decode())
        except Exception as error:  # noqa: BLE001 - a lost answer is a result, not the end
            for case in cases:
                case.trouble = f"{type(error).__name__} {error}"


def requests(cases: list[Case]) -> Iterator[list[Case]]:
    """Yield groups of one to four cases, half of them single; equal cases give equal groups."""
    start = 0
    while start < len(cases):
        numbers = random.Random(cases[start].number)
        size = 1 if numbers.random() < 0.5 else numbers.randint(2, _MOST_PROMPTS)
        group = cases[start : start + size]
        for case in group:
            case.beside = len(group) - 1
        yield group
        start += size


def together(cases: list[Case], *, lengths: bool) -> dict[str, Any]:
    """Return the inputs of one request, a row per case; draft lengths only with `lengths`."""
    rows = [dict(case.values) for case in cases]
    names = sorted({name for row in rows for name in row})
    if not lengths:
        names.remove("num_draft_tokens")
    values: dict[str, Any] = {}
    for name in names:
        if name == "stop_words":
            values[name] = _padded([row.get(name, []) for row in rows])
        else:
            values[name] = [[row.get(name, _NEUTRAL.get(name))] for row in rows]
    return values


def _padded(rows: list[list[str]]) -> list[list[str]]:
    """Return rows with the same number of stop words; an empty stop word has no effect."""
    width = max(len(row) for row in rows)
    return [row + [""] * (width - len(row)) for row in rows]
