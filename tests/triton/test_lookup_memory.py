"""The lookup memory on a real server: a text helps its own scope and affects no other request."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median
from time import perf_counter

import pytest

from cluster.processes import until
from specdec.client import Client, Connection, Request
from specdec.client.errors import ClientError
from specdec.triton.repository import RepositoryPlan
from support.triton_server import Server
from triton.conftest import Serve

NEW_TOKENS = 48
PROMPTS = 12
# The least number of prompts whose answers are timed, and the tokens of such an answer.
TIMED = 20
TIMED_TOKENS = 24


@pytest.fixture(scope="module")
def remembering(serve: Serve, draft_target_plan: RepositoryPlan) -> Iterator[Server]:
    """Yield a server with fixed draft lengths: its calls depend on texts only, not on times."""
    plan = replace(draft_target_plan, draft=None, lookup_min_match=4, lookup_memory_megabytes=1)
    with serve(plan) as running:
        yield running


def remembered(server: Server) -> float:
    """Return the number of accepted tokens from the memory."""
    name, label = "specdec_accepted_tokens_by_source_total", 'source="memory"'
    lines = server.get_metrics().splitlines()
    values = [line.split()[-1] for line in lines if line.startswith(name) and label in line]
    return float(values[0]) if values else 0.0


def ask(server: Server, prompt: str, scope: str | None) -> tuple[str, dict[str, float]]:
    """Return an answer, and how much it added to the counters."""
    names = [f"specdec_{name}_total" for name in ("rounds", "draft_tokens", "accepted_tokens")]
    before = {name: server.metric(name) for name in names} | {"memory": remembered(server)}
    with Client(Connection(server.url)) as client:
        text = client.ask(Request(prompt, max_tokens=NEW_TOKENS, lookup_scope=scope)).text
    after = {name: server.metric(name) for name in names} | {"memory": remembered(server)}
    return text, {name: after[name] - before[name] for name in before}


def test_text_helps_its_own_scope_and_changes_nothing_for_another(
    remembering: Server, prompts: list[str]
) -> None:
    asked = list(enumerate(prompts[:PROMPTS]))
    unscoped = [ask(remembering, prompt, None) for _, prompt in asked]
    first = [ask(remembering, prompt, f"own {number}") for number, prompt in asked]

    def helps() -> bool:
        again = [ask(remembering, prompt, f"own {number}") for number, prompt in asked]
        assert [text for text, _ in again] == [text for text, _ in unscoped]
        return sum(did["memory"] > 0 for _, did in again) > PROMPTS / 2

    # The server learns a text only after it has sent the answer.
    until(helps, lambda: "the texts of a scope did not help it")
    assert 0 < remembering.metric("specdec_lookup_memory_bytes") <= 2**20
    other = [ask(remembering, prompt, f"other {number}") for number, prompt in asked]
    # Texts without a scope, and texts of other scopes, do not affect these requests.
    assert first == other == unscoped
    assert all(did["memory"] == 0 for _, did in other)


@pytest.fixture(scope="module")
def slow(serve: Serve, draft_target_plan: RepositoryPlan) -> Iterator[Server]:
    """SIMULATION: a step of the target takes 16 ms, so that an answer's time shows its steps.

    On a busy machine, answers with equally many steps differ by tens of milliseconds.
    """
    target = replace(draft_target_plan.target, step_latency_ms=16)
    plan = replace(
        draft_target_plan,
        target=target,
        draft=None,
        lookup_min_match=4,
        lookup_memory_megabytes=8,
    )
    with serve(plan) as running:
        yield running


def seconds(server: Server, prompt: str, scope: str | None) -> float:
    request = Request(prompt, max_tokens=TIMED_TOKENS, lookup_scope=scope)
    with Client(Connection(server.url)) as client:
        started = perf_counter()
        client.ask(request)
        return perf_counter() - started


def growth(server: Server) -> Callable[[], bool]:
    """Return a function that reports whether the memory has grown since this call."""
    before = server.metric("specdec_lookup_memory_bytes")
    return lambda: server.metric("specdec_lookup_memory_bytes") > before


def chance_of_difference(differences: list[float]) -> float:
    """Return the p-value of Wilcoxon's signed-rank test, from 4 000 random choices of the signs.

    A single slow answer on a busy machine counts only by its rank.
    """
    numbers = random.Random(1)
    ranked = sorted(differences, key=abs)
    observed = abs(sum(math.copysign(rank, it) for rank, it in enumerate(ranked, 1)))

    def reaches(_: int) -> bool:
        signed = (numbers.choice((-1, 1)) * rank for rank in range(1, len(ranked) + 1))
        return abs(sum(signed)) >= observed

    return sum(map(reaches, range(4000))) / 4000


@pytest.mark.nightly
def test_answers_take_as_long_for_a_text_of_another_scope_as_for_an_unseen_one(
    slow: Server, prompts: list[str]
) -> None:
    own, other = list[float](), list[float]()
    for number, prompt in enumerate(prompts):
        # On a busy machine, the test needs more answers before it can see a difference.
        if number >= TIMED and chance_of_difference(own) < 0.01:
            break
        # Put the prompt into the engine's cache before the first measurement.
        seconds(slow, prompt, None)
        grows = growth(slow)
        unseen = seconds(slow, prompt, f"first {number}")
        until(grows, lambda: "the text was not learned")
        other.append(seconds(slow, prompt, f"second {number}") - unseen)
        own.append(seconds(slow, prompt, f"first {number}") - unseen)
    # The test can detect a difference: texts of the same scope make answers faster.
    assert median(own) < 0
    assert chance_of_difference(own) < 0.01
    assert chance_of_difference(other) > 0.001


def test_long_scope_is_refused(remembering: Server) -> None:
    with Client(Connection(remembering.url)) as client:
        with pytest.raises(ClientError, match="lookup_scope has 129 bytes") as refused:
            client.ask(Request("a", lookup_scope="x" * 129))
        assert "xxx" not in str(refused.value)
