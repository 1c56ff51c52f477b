"""Conditions that stop the stages early: incompatible models, a missing claim."""

from typing import Any

import pytest

from specdec.api.conditions import Condition, Type, transitions
from specdec.pipeline.stage import POLL
from support.simulated_cluster import World, fetched, resource


@pytest.mark.parametrize(
    ("draft", "code", "text"),
    [
        ({"tokenizer": "ffff"}, "TokenizerMismatch", "choose a draft trained with"),
        ({"vocabSize": 32000}, "VocabSizeMismatch", "32000 entries and the target's 1024"),
        ({"eos": 7}, "SpecialTokensMismatch", "make eos_token_id equal"),
    ],
)
def test_an_unfit_draft_never_gets_an_engine_job(
    draft: dict[str, Any], code: str, text: str
) -> None:
    world = World(resource())
    world.bind()
    world.step()
    world.finish(world.job("fetch"), fetched(draft=draft))

    for _ in range(3):
        decision = world.step()
        assert decision.requeue_after is None

    compatible = world.condition("Compatible")
    assert (compatible["status"], compatible["reason"]) == ("False", code)
    assert text in compatible["message"]
    assert world.named("engine") == []
    assert not any(kind == "ConfigMap" for kind, _ in world.ever_applied)
    assert world.condition("Ready")["reason"] == code
    assert world.condition("ModelsFetched")["status"] == "True"


def judged(world: World, **draft: Any) -> dict[str, Any]:
    """Return the condition Compatible after a fetch with these facts of the draft."""
    world.bind()
    world.step()
    world.finish(world.job("fetch"), fetched(draft=draft))
    world.step()
    return world.condition("Compatible")


def findings(world: World, role: str) -> list[tuple[str, str]]:
    """Return code and severity of a model's findings in the status."""
    (entry,) = (e for e in world.cr["status"]["models"] if e["role"] == role)
    return [(f["code"], f["severity"]) for f in entry["facts"].get("findings", [])]


def test_facts_are_remembered_without_the_job() -> None:
    world = World(resource())
    judged(world, tokenizer="ffff")
    world.jobs.clear()
    world.pods.clear()

    world.step()

    assert world.condition("Compatible")["reason"] == "TokenizerMismatch"
    assert findings(world, "draft") == [("TokenizerMismatch", "Enforce")]
    assert findings(world, "target") == []
    assert world.jobs == {}


def test_a_changed_severity_needs_no_new_job() -> None:
    world = World(resource())
    judged(world, tokenizer="ffff", chatTemplate="aaaa")
    world.jobs.clear()
    world.pods.clear()

    world.spec["checks"] = {"tokenizer": "Warn"}
    world.step()

    condition = world.condition("Compatible")
    assert (condition["status"], condition["reason"]) == ("True", "FitsWithWarnings")
    assert "TokenizerMismatch: draft and target have different tokenizers" in condition["message"]
    assert world.named("fetch") == []
    assert len(world.named("engine")) == 2

    world.spec["checks"] = {"tokenizer": "Disabled"}
    world.step()
    assert world.condition("Compatible")["reason"] == "Fits"
    assert findings(world, "draft") == []


def test_findings_of_an_older_release_are_checked_again() -> None:
    world = World(resource())
    judged(world)
    world.jobs.clear()
    world.pods.clear()
    old = {"code": "TokenizerMismatch", "message": "they differ"}
    world.cr["status"]["models"][1]["facts"]["findings"] = [old]

    world.step()

    assert world.condition("Compatible")["reason"] == "Fits"
    assert findings(world, "draft") == []


def test_a_warning_becomes_a_warning_event() -> None:
    world = World(resource())
    condition = judged(world, maxPosition=100)
    assert (condition["status"], condition["reason"]) == ("True", "FitsWithWarnings")
    assert "the draft was trained on 100 positions" in condition["message"]
    assert "the target was trained" not in condition["message"]
    (event,) = transitions([], [Condition(Type.COMPATIBLE, "True", condition["reason"])])
    assert event.warning


def test_pending_claim_gets_its_first_consumer() -> None:
    world = World(resource())
    world.bind()
    assert world.claim is not None
    world.claim["status"]["phase"] = "Pending"

    world.step()

    assert world.condition("StorageReady")["reason"] == "ClaimPending"
    assert "kubectl describe pvc pair-models" in world.condition("StorageReady")["message"]
    assert len(world.named("fetch")) == 1
    assert world.cr["status"]["phase"] == "Pending"


@pytest.mark.parametrize("phase", ["Lost", None])
def test_missing_claim_stops_the_chain(phase: str | None) -> None:
    storage = {"existingClaim": "mine"}
    world = World(resource(storage=storage))
    if phase:
        world.bind()
        assert world.claim is not None
        world.claim["status"]["phase"] = phase

    decision = world.step()

    reason = "ClaimLost" if phase else "ClaimNotFound"
    assert world.condition("StorageReady")["reason"] == reason
    assert "mine" in world.condition("StorageReady")["message"]
    assert decision.apply == ()
    assert decision.requeue_after == POLL


def test_heads_of_another_size_never_get_an_engine_job() -> None:
    cr = resource("None", gpu={"product": "NVIDIA-H100-80GB-HBM3"})
    cr["spec"]["runtime"] = {"backend": "TensorRT"}
    heads = {"s3": {"uri": "s3://bucket/heads", "credentialsSecretRef": {"name": "s"}}}
    block = {"checkpoint": heads, "numLayers": 4}
    cr["spec"]["speculation"] = {"method": "Eagle", "maxDraftTokens": 63, "eagle": block}
    world = World(cr)
    world.bind()
    world.step()
    event = fetched()
    models = {"target": event["models"]["target"], "heads": {"digest": "c" * 64, "bytes": 9}}
    models["heads"]["facts"] = {"method": "Eagle", "hiddenSize": 5120, "vocabSize": 1024}

    world.finish(world.job("fetch"), {**event, "models": models})
    world.step()

    condition = world.condition("Compatible")
    assert (condition["status"], condition["reason"]) == ("False", "HeadsHiddenSizeMismatch")
    assert "hidden size is 5120 in config.json of the heads and 256" in condition["message"]
    assert findings(world, "heads") == [("HeadsHiddenSizeMismatch", "Enforce")]
    assert world.condition("ModelsFetched")["message"].startswith("target and heads on")
    assert world.named("engine") == []
