"""No termination message of a Job causes an exception or an invalid status."""

import copy
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from specdec.api import conditions
from specdec.api.reasons import Reason
from specdec.pipeline.decide import Decision, decide
from specdec.pipeline.job_results import MOST_CHARACTERS, Result, result
from specdec.pipeline.observed import job_state
from support.effort import examples
from support.simulated_cluster import World, ended, fetched, measured, resource, settled
from unit.status_schema import refusals

Json = dict[str, Any]
MUTANTS = 2000
# A decision takes milliseconds, so the test decides only for this many distinct results.
DECIDED = 1000
JUNK: list[Any] = [
    *(None, True, False, 0, -1, 1.5, 1e308, float("nan"), float("inf")),
    *(2**31, 2**63, -(2**63), 10**30, "", "x", "7", "x" * 5000, "\ud800", "\x1b[2J\u202e"),
    *("2026-13-45T99:99:99Z", "2026-01-01", "Serving", [], {}, [[]], {"a": {"b": []}}, [None]),
]
TEXTS = ["", "null", "[]", "0", "{", '{"models":', "[" * 4096, '{"a":' * 700, "\0", '"\\ud800"']
IMAGE = {
    "version": "1.2.1",
    "templates": 5,
    "flags": 20,
    "warning": "the image differs",
    "requestFields": {"minTokens": "min_tokens", "seed": "seed"},
}
BUILT = {
    "engine": {
        "key": "0" * 64,
        "bytes": 1000,
        "seconds": 1.5,
        "maxDraftLen": 8,
        "image": IMAGE,
    }
}
ERROR = {"error": {"reason": "EngineMissing", "message": "the draft engine is not complete"}}


def before(component: str) -> World:
    """Return a world in which a Job of this component runs, and all Jobs before it succeeded."""
    world = World(resource(benchmark={"mode": "OnReady"}))
    for _ in range(20):
        world.step()
        if world.claim is None:
            world.bind()
        for name, job in list(world.jobs.items()):
            kind = job["metadata"]["labels"]["app.kubernetes.io/component"]
            if "status" not in job and kind == component:
                return world
            if "status" not in job:
                world.finish(name, good(world, name))
        world.serve()
    raise AssertionError(f"no Job of {component}")


def good(world: World, job: str) -> Json:
    """Return a valid result of a Job that succeeds."""
    if "-fetch-" in job:
        return fetched(target={"quantization": "FP8", "parameters": 7 * 10**9}, engines=["0" * 16])
    return measured(world.jobs[job]) or copy.deepcopy(BUILT)


def nodes(value: Any) -> list[tuple[Any, Any]]:
    """Return every member of a JSON value, at any depth, as its container and its key."""
    items = list(value.items() if isinstance(value, dict) else enumerate(value))
    members = [(value, key) for key, _ in items]
    for _, inner in items:
        if isinstance(inner, dict | list):
            members += nodes(inner)
    return members


def mutant(value: Json, rng: random.Random) -> str:
    """Return a damaged message: valid JSON with changed members, or a damaged text."""
    spoiled = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = nodes(spoiled)
        if not places:
            break
        place, key = rng.choice(places)
        how = rng.randrange(6)
        if how == 0:
            del place[key]
        elif how == 1 and isinstance(place, dict):
            place[str(rng.choice(JUNK))] = place.pop(key)
        elif how == 2:
            place[key] = [copy.deepcopy(place[key])] * rng.choice((1, 3, 200))
        else:
            place[key] = copy.deepcopy(rng.choice(JUNK))
    text = json.dumps(spoiled)
    if rng.random() < 0.1:
        at = rng.randrange(len(text))
        text = (
            text[:at] + rng.choice(["", '"', "}", "9" * 40, "\\u0000", "\ufeff"]) + text[at + 1 :]
        )
    return rng.choice(TEXTS) if rng.random() < 0.02 else text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("component", "code"),
    [
        *((kind, 0) for kind in ("fetch", "engine", "publish", "verify", "benchmark")),
        *((kind, 2) for kind in ("fetch", "engine", "publish", "benchmark")),
    ],
)
def test_no_message_raises_or_spoils_the_status(component: str, code: int) -> None:
    rng = random.Random(f"{component} {code}")
    world = before(component)
    name = world.named(component)[0]
    job = world.jobs[name]
    value = good(world, name) | (ERROR if code else {})
    kind, reason = ("Failed", "PodFailurePolicy") if code else ("Complete", "CompletionsReached")
    job["status"] = {"conditions": [{"type": kind, "status": "True", "reason": reason}]}
    assert job_state(job) == kind
    world.pod(name, {})
    status = world.cr["status"]
    results: list[Result] = []
    for _ in range(examples(MUTANTS)):
        text = mutant(value, rng)
        world.pods[-1]["status"] = ended(text, code)
        world.cr["status"] = status
        parsed = result(world.pods[-1:])
        if parsed in results or len(results) == examples(DECIDED):
            continue
        results.append(parsed)
        # The second decision reads the status of the first decision.
        for _ in range(2):
            try:
                world.cr["status"] = judged(world)
            except Exception as error:
                raise AssertionError(f"{component} raised on {text!r}") from error
    assert len(results) > 5


def judged(world: World) -> Json:
    """Return the status of the next decision, after a check against the definition's schema."""
    decision = decided(world)
    old = world.cr["status"]["conditions"]
    merged = conditions.merge(old, decision.conditions, 1, "2026-01-02T03:04:05Z")
    status: Json = {**decision.status, "conditions": merged}
    assert list(refusals(json.loads(json.dumps(status)))) == []
    assert all(isinstance(c.reason, Reason) for c in decision.conditions)
    return status


def decided(world: World) -> Decision:
    return decide(world.model(), world.observed(), world.images)


@pytest.mark.parametrize(
    ("component", "kind", "spoil", "field"),
    [
        (
            "fetch",
            "ModelsFetched",
            lambda report: report["models"]["draft"].update(bytes="many"),
            "models.draft.bytes: ",
        ),
        (
            "fetch",
            "ModelsFetched",
            lambda report: report["models"]["target"]["facts"].update(vocabSize=True),
            "models.target.facts.vocabSize: ",
        ),
        ("engine", "EnginesReady", lambda report: report["engine"].update(seconds="1"), "seconds"),
        (
            "verify",
            "SpeculationActive",
            lambda report: report["verification"].pop("acceptedTokens"),
            "verification",
        ),
        (
            "benchmark",
            "BenchmarkCompleted",
            lambda report: report["benchmark"].update(measuredAt="today"),
            "benchmark.measuredAt: ",
        ),
    ],
)
def test_unreadable_result_is_a_condition(
    component: str, kind: str, spoil: Callable[[Json], object], field: str
) -> None:
    world = before(component)
    name = world.named(component)[0]
    report = good(world, name)
    spoil(report)
    world.finish(name, report)
    world.step()
    condition = world.condition(kind)
    assert condition["reason"] == "InvalidResult"
    assert condition["status"] == ("Unknown" if kind in conditions.MEASURED else "False")
    assert field in condition["message"]
    assert name in condition["message"]
    assert f"kubectl delete job {name}" in condition["message"]
    assert "many" not in condition["message"]
    # A deleted Job runs again, and the stage uses its valid result.
    world.delete("Job", name)
    for _ in range(3):
        world.step()
        if name in world.jobs and "status" not in world.jobs[name]:
            world.finish(name, good(world, name))
    assert world.condition(kind)["reason"] != "InvalidResult"


def test_undocumented_reason_of_a_job_is_replaced() -> None:
    world = before("engine")
    name = world.named("engine")[0]
    error = {"reason": "PodsReady", "message": "all is well"}
    world.pod(name, ended(json.dumps({"error": error}), 2))
    condition = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy"}
    world.jobs[name]["status"] = {"conditions": [condition]}
    world.step()
    condition = world.condition("EnginesReady")
    assert condition["reason"] == "BuildFailed"
    assert "all is well" in condition["message"]


def test_container_without_end_time_is_handled() -> None:
    world = settled(resource())
    unseen = {"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": None}
    status = {"terminated": {**unseen, "finishedAt": None}}
    world.deployments["pair"]["status"] = {}
    template = world.deployments["pair"]["spec"]["template"]
    pod = {
        "metadata": {**template["metadata"], "name": "pair-0", "creationTimestamp": "2026"},
        "spec": template["spec"],
        "status": {"containerStatuses": [{"name": "server", "state": status}]},
    }
    world.pods.append(pod)
    world.step()
    assert world.condition("Available")["reason"] == "CrashLoop"


def test_a_message_of_many_megabytes_is_not_read() -> None:
    pod = {"metadata": {"name": "pod"}, "status": ended('{"engines": []' + " " * 10**6 + "}")}
    assert result([pod]) == result([])
    assert MOST_CHARACTERS < 10**6
