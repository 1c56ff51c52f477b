"""ModelsFetched and Compatible: refused configurations, and what a copy takes."""

import json
from typing import Any

import pytest

from support.simulated_cluster import World, fetched, resource

Json = dict[str, Any]


def refused(world: World, reason: str = "TokenizerMismatch") -> str:
    """Let the fetch Job refuse the configurations, and return its name."""
    world.step()
    world.bind()
    world.step()
    name = world.job("fetch")
    world.fail(name, json.dumps({"error": {"reason": reason, "message": "choose another draft"}}))
    world.step()
    return name


def test_refused_configuration_is_a_finding_and_no_failed_download() -> None:
    world = World(resource())

    name = refused(world)

    models, compatible = (world.condition(kind) for kind in ("ModelsFetched", "Compatible"))
    assert (models["status"], models["reason"]) == ("Unknown", "NotFetched")
    assert (compatible["status"], compatible["reason"]) == ("False", "TokenizerMismatch")
    assert "choose another draft" in compatible["message"]
    assert world.condition("Ready")["reason"] == "TokenizerMismatch"
    assert world.cr["status"]["phase"] == "Failed"
    assert name in world.jobs


@pytest.mark.parametrize(
    ("change", "again"),
    [
        ({"checks": {"tokenizer": "Warn"}}, True),
        ({"metadata": {"common": {"labels": {"team": "a"}}}}, False),
        ({"revisionHistoryLimit": 3}, False),
    ],
)
def test_change_that_the_rules_read_runs_the_job_again(change: Json, again: bool) -> None:
    world = World(resource())
    name = refused(world)
    before = world.jobs[name]

    world.spec.update(change)
    for _ in range(3):
        world.step()

    assert (world.jobs[name] is not before) == again


def test_refusal_with_an_undocumented_reason_is_a_failed_fetch() -> None:
    world = World(resource())

    refused(world, "Strange")

    assert world.condition("ModelsFetched")["reason"] == "FetchFailed"


def test_copy_from_another_claim_is_stated_with_its_size() -> None:
    world = World(resource())

    world.settle(lambda component: fetched() if component == "fetch" else {})

    assert world.condition("ModelsFetched")["message"] == (
        "target and draft on the volume (2.0 MB); 2.0 MB of them are a copy from claim "
        "reference-pair, which spec.storage.existingClaim would use in place"
    )


def test_source_on_the_own_claim_is_no_copy() -> None:
    world = World(resource(storage={"existingClaim": "reference-pair"}))
    world.bind()

    world.settle(lambda component: fetched() if component == "fetch" else {})

    message = world.condition("ModelsFetched")["message"]
    assert message == "target and draft on the volume (2.0 MB)"
    (container,) = world.jobs[world.job("fetch")]["spec"]["template"]["spec"]["containers"]
    plan = json.loads(container["command"][-1])
    assert plan["inPlace"] == ["target", "draft"]
    assert [mount["mountPath"] for mount in container["volumeMounts"]].count("/models") == 1
    assert not any(m["mountPath"].startswith("/sources") for m in container["volumeMounts"])
