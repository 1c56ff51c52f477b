"""The memory of lookups on a real server: a text helps its own scope and leaves no other trace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.processes import until
from specdec.client import Client, Connection, Request
from specdec.client.errors import ClientError
from specdec.triton.repository import RepositoryPlan, render
from support.triton_server import Server

NEW_TOKENS = 48
PROMPTS = 12


@pytest.fixture(scope="module")
def remembering(
    executable: Path,
    draft_target_plan: RepositoryPlan,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    """A server of fixed draft lengths: its calls depend on the texts alone, not on times."""
    plan = replace(draft_target_plan, draft=None, lookup_min_match=4, lookup_memory_megabytes=1)
    with Server(executable, render(plan), tmp_path_factory.mktemp("memory")) as running:
        yield running


def remembered(server: Server) -> float:
    """Accepted tokens from the memory."""
    name, label = "specdec_accepted_tokens_by_source_total", 'source="memory"'
    lines = server.get_metrics().splitlines()
    values = [line.split()[-1] for line in lines if line.startswith(name) and label in line]
    return float(values[0]) if values else 0.0


def ask(server: Server, prompt: str, scope: str | None) -> tuple[str, dict[str, float]]:
    """An answer, and what it added to the counters."""
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

    # A text is learned after its answer was sent.
    until(helps, 30, lambda: "the texts of a scope did not help it")
    other = [ask(remembering, prompt, f"other {number}") for number, prompt in asked]
    # Neither the text of no scope nor that of another scope leaves a trace.
    assert first == other == unscoped
    assert all(did["memory"] == 0 for _, did in other)


def test_long_scope_is_refused(remembering: Server) -> None:
    with Client(Connection(remembering.url)) as client:
        with pytest.raises(ClientError, match="lookup_scope has 129 bytes") as refused:
            client.ask(Request("a", lookup_scope="x" * 129))
        assert "xxx" not in str(refused.value)
