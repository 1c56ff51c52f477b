"""A service proves itself: it speculates, loses nothing, and whether it is worth it.

And says so when it does not, within the one run that follows the change.
"""

import json
import re
import subprocess
import sys

from e2e.checkpoints import Copies, deepen
from e2e.world import Object, World, model, source
from specdec.client.dataset import built_in

# Times the draft's own one; on a CPU its answers then take several times as long.
LAYERS = 192
KINDS = ("SpeculationActive", "OutputEquivalent", "SpeculationEffective")
# What a draft that says the same leaves as it is.
SAME = ("prompts", "matched")
# Nearly: a prompt that comes late to the others' draft proposes fewer tokens (ADR 0098), and how
# late it comes is a matter of the draft's time.
NEARLY = ("rounds", "draftedTokens", "acceptedTokens")


def test_what_serves_is_proved_and_drafts_that_are_slow_or_missing_are_told(
    world: World, copies: Copies
) -> None:
    deepen(copies("draft", "deep-draft"), LAYERS)
    # A CPU verifies five tokens in more time than one: speed is judged by what it was here.
    gate = {"mode": "Gate", "maxPrompts": 8, "maxTokens": 16, "minSpeedupPercent": 1}
    name = world.apply(model("proved", verification=gate))
    found = world.ready(name, 240)["status"]["speculation"]
    for kind in KINDS:
        assert world.condition(name, kind)["status"] == "True", world.condition(name, kind)
    assert found["matched"] == found["prompts"] == 8
    assert 0 < found["acceptedTokens"] <= found["draftedTokens"]
    assert found["acceptancePercent"] > 0
    assert float(found["tokensPerRound"]) > 1
    row = dict(
        zip(*(r.split() for r in world.kubectl("get", "specm", name).splitlines()), strict=True)
    )
    assert row["ACCEPT"] == str(found["acceptancePercent"])

    least = max(1, found["speedupPercent"] * 3 // 5)
    world.patch(name, {"verification": {"minSpeedupPercent": least}})
    world.until(name, "SpeculationEffective", "Effective")
    a_slow_draft_is_told(world, name, found, least)

    world.patch(name, {"speculation": {"draftTokens": 0}})
    told = world.until(name, "SpeculationActive", "NoDraftTokensObserved", 240)
    assert "draftTokens is 0" in told["message"]
    assert world.condition(name, "Ready")["status"] == "False"
    assert "acceptancePercent" not in world.get(name)["status"]["speculation"]


def a_slow_draft_is_told(world: World, name: str, fast: Object, least: int) -> None:
    """By the first run of it, and by nothing but its time."""
    slow = {"draftTarget": {"draft": {"source": source("deep-draft")}}}
    world.patch(name, {"speculation": slow})
    told = world.until(name, "SpeculationEffective", "SlowerThanBaseline", 240)
    found = world.get(name)["status"]["speculation"]
    assert found["speedupPercent"] < least
    speed = f"{found['speedupPercent']} % of its speed"
    limit = f"spec.verification.minSpeedupPercent {least}"
    assert told["status"] == "False"
    assert f"{speed}, below {limit}: " in told["message"]
    assert [found[key] for key in SAME] == [fast[key] for key in SAME]
    for key in NEARLY:
        assert abs(found[key] - fast[key]) <= fast[key] / 5, (key, found[key], fast[key])
    for kind in KINDS[:2]:
        assert world.condition(name, kind)["status"] == "True"
    # The gate that the fast one passed.
    assert world.condition(name, "Ready")["reason"] == "SlowerThanBaseline"
    assert found["planHash"] != fast["planHash"]
    (job,) = (j for j in measuring(world, name) if j["metadata"]["name"] == job_of(name, found))
    assert (job["status"]["succeeded"], job["status"].get("failed", 0)) == (1, 0)


def measuring(world: World, name: str) -> list[Object]:
    """The Jobs that measure what serves."""
    return world.listed("jobs", f"app.kubernetes.io/component=verify,specdec.dev/model={name}")


def job_of(name: str, found: Object) -> str:
    """The Job that a measurement is of."""
    return f"{name}-verify-{found['planHash'][:10]}"


def verify(world: World, name: str, *arguments: str) -> tuple[int, str, str]:
    """`specdec verify` as a user starts it; its exit status and what it printed."""
    argv = ("verify", "--url", world.address(name), "--max-tokens", "16", *arguments)
    done = subprocess.run(
        [sys.executable, "-m", "specdec.cli", *argv],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_the_command_passes_a_hundred_prompts_and_finds_another_checkpoint(
    world: World, served: str
) -> None:
    # The pair's draft served as a target: the same vocabulary, other answers.
    other = world.apply(
        model(
            "other",
            target={"source": source("draft")},
            speculation={
                "method": "None",
                "draftTarget": None,
                "draftTokens": None,
                "maxDraftTokens": None,
            },
        )
    )
    status, told, errors = verify(world, served, "--json")
    assert (status, errors) == (0, "")
    found = json.loads(told)
    assert (found["prompts"], found["matched"], found["different"]) == (100, 100, 0)
    assert 0 < found["accepted_tokens"] < found["draft_tokens"]

    world.ready(other)
    against = ("--baseline-url", world.address(other), "--limit", "12")
    status, told, errors = verify(world, served, *against)
    assert (status, errors) == (1, "")
    first = re.search(r"^prompt (\d+) differs at token \d+, character \d+", told, re.MULTILINE)
    assert first, told
    assert f"  prompt    {built_in()[int(first[1]) - 1].prompt[:20]}" in told
    assert re.search(r"^ +\^$", told, re.MULTILINE), told
    (differ,) = re.findall(r"different answers\D+(\d+)", told)
    assert int(differ) > 6
