"""What stops the chain early: a pair that does not fit, a claim that is not there."""

from typing import Any

import pytest

from golden.world import World, fetched, resource


@pytest.mark.parametrize(
    ("draft", "code", "words"),
    [
        ({"tokenizer": "ffff"}, "TokenizerMismatch", "choose a draft trained with"),
        ({"vocabSize": 32000}, "VocabSizeMismatch", "32000 entries and the target's 1024"),
        ({"eos": 7}, "SpecialTokensMismatch", "make eos_token_id equal"),
    ],
)
def test_an_unfit_draft_never_gets_an_engine_job(
    draft: dict[str, Any], code: str, words: str
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
    assert words in compatible["message"]
    assert world.named("engine") == []
    assert not any(kind == "ConfigMap" for kind, _ in world.ever_applied)
    assert world.condition("Ready")["reason"] == code
    assert world.condition("ModelsFetched")["status"] == "True"


def test_the_job_s_own_findings_count_and_are_remembered() -> None:
    world = World(resource())
    world.bind()
    world.step()
    finding = {"code": "TokenizerMismatch", "message": "they differ"}
    world.finish(world.job("fetch"), fetched(compatible=False, findings=[finding]))
    world.step()
    world.jobs.clear()
    world.pods.clear()

    world.step()

    assert world.condition("Compatible")["message"] == "they differ"
    assert world.jobs == {}


def test_a_context_longer_than_the_checkpoint_s_is_a_caution() -> None:
    world = World(resource())
    world.bind()
    world.step()
    world.finish(world.job("fetch"), fetched(draft={"maxPosition": 100}))
    world.step()
    condition = world.condition("Compatible")
    assert (condition["status"], condition["reason"]) == ("True", "Fits")
    assert "the draft was trained on 100 positions" in condition["message"]
    assert "the target was trained" not in condition["message"]


def test_a_claim_that_waits_for_its_first_consumer_gets_one() -> None:
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
def test_a_claim_that_is_gone_stops_everything(phase: str | None) -> None:
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
    assert decision.requeue_after == 5
