"""Verification of a service: it checks speculation and equal output, and measures the speedup.

The first run after a change reports a failed verification.
"""

import json
import os
import re
import subprocess
import sys

from cluster import binaries
from cluster.processes import DEADLINE_SECONDS
from e2e.checkpoints import Copies, deepen
from e2e.world import NO_DRAFT, Object, World, model, source
from specdec.client.dataset import built_in

# Layers of the slow draft; the pair's draft has one layer. On a CPU its answers take several times
# as long.
LAYERS = 192
KINDS = ("SpeculationActive", "OutputEquivalent", "SpeculationEffective")
# Fields of the result that are equal for every draft with the same output.
SAME = ("prompts", "matched")

# A CPU verifies five tokens more slowly than one. So the test derives its limit from a measured
# speedup.
GATE = {"mode": "Gate", "maxPrompts": 8, "maxTokens": 16, "minSpeedupPercent": 1}
# The Reference backend does not use GPUs, but its pod receives them like any other pod.
PROVED = model(
    "proved",
    verification=GATE,
    target={"gpu": {"deviceIds": [0]}},
    speculation={"draftTarget": {"draft": {"gpu": {"deviceIds": [1]}}}},
)
# Serves the pair's draft as a target: its vocabulary is the same, but its answers differ.
OTHER = model(
    "other", target={"source": source("draft")}, speculation={**NO_DRAFT, "method": "None"}
)


def test_verification_reports_slow_and_missing_drafts(
    world: World, copies: Copies, gpus: None
) -> None:
    deepen(copies("draft", "deep-draft"), LAYERS)
    name = world.apply(PROVED)
    status = world.ready(name)["status"]
    assert status["plan"]["devices"] == {"target": [0], "draft": [1]}
    (container,) = world.pods(name)[0]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    result = status["speculation"]
    for kind in KINDS:
        assert world.condition(name, kind)["status"] == "True", world.condition(name, kind)
    assert result["matched"] == result["prompts"] == 8
    assert 0 < result["acceptedTokens"] <= result["draftedTokens"]
    assert result["acceptancePercent"] > 0
    assert float(result["tokensPerRound"]) > 1
    row = dict(
        zip(*(r.split() for r in world.kubectl("get", "specm", name).splitlines()), strict=True)
    )
    assert row["ACCEPT"] == f"{result['acceptancePercent']}%"

    least = max(1, result["speedupPercent"] * 3 // 5)
    world.patch(name, {"verification": {"minSpeedupPercent": least}})
    world.until(name, "SpeculationEffective", "Effective")
    assert_slow_draft_is_reported(world, name, result, least)

    world.patch(name, {"speculation": {"draftTokens": 0}})
    condition = world.until(name, "SpeculationActive", "NoDraftTokensObserved")
    assert "draftTokens is 0" in condition["message"]
    assert world.condition(name, "Ready")["status"] == "False"
    assert "acceptancePercent" not in world.get(name)["status"]["speculation"]


def assert_slow_draft_is_reported(world: World, name: str, fast: Object, least: int) -> None:
    """Check that the first run reports the slow draft, and that only its speed differs."""
    slow = {"draftTarget": {"draft": {"source": source("deep-draft")}}}
    world.patch(name, {"speculation": slow})
    condition = world.until(name, "SpeculationEffective", "SlowerThanBaseline")
    result = world.get(name)["status"]["speculation"]
    assert result["speedupPercent"] < least
    speed = f"{result['speedupPercent']} % of the speed of the target alone"
    limit = f"spec.verification.minSpeedupPercent {least}"
    assert condition["status"] == "False"
    assert f"{speed}, below {limit}: " in condition["message"]
    assert [result[key] for key in SAME] == [fast[key] for key in SAME]
    # A prompt that joins a running draft batch proposes fewer tokens (ADR 0098). The draft's speed
    # affects when a prompt joins, but neither the answers' tokens nor the draft's quality.
    assert abs(tokens(result) - tokens(fast)) <= result["prompts"], (result, fast)
    assert result["acceptancePercent"] >= fast["acceptancePercent"] * 3 / 4, (result, fast)
    for kind in KINDS[:2]:
        assert world.condition(name, kind)["status"] == "True"
    # The fast draft passed the same gate.
    assert world.condition(name, "Ready")["reason"] == "SlowerThanBaseline"
    assert result["planHash"] != fast["planHash"]
    (job,) = (j for j in measuring(world, name) if j["metadata"]["name"] == job_of(name, result))
    assert (job["status"]["succeeded"], job["status"].get("failed", 0)) == (1, 0)


def tokens(result: Object) -> int:
    """Return the tokens of rounds with a draft; a prompt's last token may be missing."""
    return int(result["rounds"] + result["acceptedTokens"])


def measuring(world: World, name: str) -> list[Object]:
    """Return the verification Jobs of a resource."""
    return world.listed("jobs", f"app.kubernetes.io/component=verify,specdec.dev/model={name}")


def job_of(name: str, result: Object) -> str:
    """Return the name of the Job that measured a result."""
    return f"{name}-verify-{result['planHash'][:10]}"


def verify(world: World, url: str, *arguments: str) -> tuple[int, str, str]:
    """Run `specdec verify` as a user does; return its exit status, output and errors."""
    argv = ("verify", "--url", url, "--max-tokens", "16", *arguments)
    environment = {
        "KUBECONFIG": str(world.kubeconfig),
        "PATH": os.pathsep.join((str(binaries.path("kubectl").parent), os.environ["PATH"])),
    }
    done = subprocess.run(
        [sys.executable, "-m", "specdec.tools.cli", *argv],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stdout, done.stderr


def test_verify_command_passes_equal_and_reports_different_checkpoints(
    world: World, served: str
) -> None:
    other = world.apply(OTHER)
    # The first run connects to the service as a user outside the cluster does.
    status, output, errors = verify(world, f"specm/{served}", "--json")
    assert (status, errors) == (0, "")
    result = json.loads(output)
    assert (result["prompts"], result["matched"], result["different"]) == (100, 100, 0)
    assert 0 < result["accepted_tokens"] < result["draft_tokens"]

    world.ready(other)
    against = ("--baseline-url", world.address(other), "--limit", "12")
    status, output, errors = verify(world, world.address(served), *against)
    assert (status, errors) == (1, "")
    first = re.search(r"^prompt (\d+) differs at token \d+, character \d+", output, re.MULTILINE)
    assert first, output
    assert f"  prompt    {built_in()[int(first[1]) - 1].prompt[:20]}" in output
    assert re.search(r"^ +\^$", output, re.MULTILINE), output
    (differ,) = re.findall(r"different answers\D+(\d+)", output)
    assert int(differ) > 6
