"""The stages from an empty cluster to a serving resource, and changes that need a new build."""

from specdec.api import conditions
from specdec.api.conditions import OPTIONAL, Type
from support.simulated_cluster import (
    FACTS,
    World,
    fetched,
    limits,
    measured,
    resource,
    settled,
    source,
)


def kinds(world: World) -> list[str]:
    assert world.last is not None
    return [obj["kind"] for obj in world.last.apply]


def test_stages_run_in_order() -> None:
    world = World(resource())

    world.step()
    assert kinds(world) == ["PersistentVolumeClaim"]
    assert world.condition("StorageReady")["reason"] == "ClaimPending"

    world.bind()
    world.step()
    assert kinds(world) == ["PersistentVolumeClaim", "Job"]
    assert world.condition("ModelsFetched")["reason"] == "Queued"
    assert world.condition("Compatible")["status"] == "Unknown"

    world.finish(world.job("fetch"), fetched())
    world.step()
    assert kinds(world) == ["PersistentVolumeClaim", *["ConfigMap", "Job"] * 2]
    assert world.condition("Compatible")["reason"] == "Fits"
    assert world.cr["status"]["phase"] == "Building"

    for name in world.named("engine"):
        world.finish(name, {"engine": {"seconds": 1.4}})
    world.step()
    assert kinds(world) == ["PersistentVolumeClaim", "ConfigMap", "Job"]
    assert [e["seconds"] for e in world.cr["status"]["engines"]] == [1, 1]

    world.finish(world.job("publish"), {})
    world.step()
    # ConfigMaps with the repository and the pods' programs are applied before the Deployment.
    maps = ["ConfigMap"] * 2
    assert kinds(world) == ["PersistentVolumeClaim", *maps, "Deployment", "Service"]
    assert world.condition("Available")["reason"] == "Starting"

    world.serve()
    world.step()
    assert world.condition("Ready")["reason"] == "Serving"
    assert world.cr["status"]["phase"] == "Serving"
    assert kinds(world)[-1] == "Job"
    assert world.condition("SpeculationActive")["reason"] == "Queued"

    world.finish(world.job("verify"), measured(world.jobs[world.job("verify")]))
    decision = world.step()
    assert world.condition("SpeculationActive")["status"] == "True"
    assert decision.requeue_after is None
    assert decision.delete == ()


def test_status_always_has_all_conditions() -> None:
    world = World(resource())
    always = [kind for kind in Type if kind not in OPTIONAL]
    for _ in range(2):
        decision = world.step()
        assert [c.type for c in decision.conditions] == always
        world.bind()


def test_results_outlive_their_jobs() -> None:
    world = settled(resource())
    world.jobs.clear()
    world.pods.clear()

    world.step()

    assert world.condition("Ready")["status"] == "True"
    assert world.jobs == {}


def test_other_draft_tokens_build_nothing_but_publish() -> None:
    world = settled(resource())
    before = set(world.named("engine"))
    world.spec["speculation"]["draftTokens"] = 2

    world.step()

    assert set(world.named("engine")) == before
    assert len(world.named("publish")) == 2
    assert world.condition("EnginesReady")["status"] == "True"
    ready = world.condition("Ready")
    assert ready["reason"] == "Queued"
    assert ready["message"].endswith("the previous revision still serves")
    assert world.condition("Available")["status"] == "True"


def test_another_max_seq_len_builds_while_the_old_pods_serve() -> None:
    world = settled(resource())
    deployment, served = world.deployment, world.cr["status"]["serving"]["revision"]
    world.spec["target"]["limits"] = limits(maxSeqLen=500)

    world.step()

    assert len(world.named("engine")) == 3
    assert world.deployment == deployment
    assert world.condition("Available")["status"] == "True"
    assert world.cr["status"]["serving"]["revision"] == served
    assert "Deployment" not in kinds(world)
    assert "Service" in kinds(world)

    world.settle()
    assert world.deployment is not None
    world.serve()
    world.step()
    assert world.cr["status"]["serving"]["revision"] != served
    assert world.condition("Ready")["status"] == "True"


def test_repositories_are_deleted_once_nothing_serves_them() -> None:
    world = settled(resource())
    first = world.job("publish")
    world.spec["speculation"]["draftTokens"] = 2
    world.step()
    assert set(world.named("publish")) > {first}
    assert first in world.config_maps

    for name in world.named("publish"):
        if "status" not in world.jobs[name]:
            world.finish(name, {})
    world.step()
    world.serve()
    world.step()

    assert first not in world.jobs
    assert first not in world.config_maps
    assert len(world.named("publish")) == 1


def test_another_source_fetches_again_and_stops_the_old_fetch() -> None:
    world = World(resource())
    world.bind()
    world.step()
    old = world.job("fetch")
    world.spec["target"]["source"]["pvc"]["path"] = "elsewhere"

    world.step()

    assert old not in world.jobs
    assert len(world.named("fetch")) == 1


def test_finished_fetches_of_other_sources_are_deleted() -> None:
    world = settled(resource())
    old = world.job("fetch")
    world.spec["target"]["source"]["pvc"]["path"] = "elsewhere"
    world.step()
    assert old in world.jobs
    world.settle()
    assert old not in world.jobs


def test_new_volume_of_the_same_name_forgets_all_results() -> None:
    world = settled(resource())
    world.bind(uid="another-claim")

    world.step()

    assert world.condition("ModelsFetched")["status"] == "False"
    assert len(world.named("fetch")) == 2


def test_an_engine_on_the_volume_needs_no_job() -> None:
    first = settled(resource())
    keys = [e["key"][:16] for e in first.cr["status"]["engines"]]
    second = World(resource())
    second.cr["metadata"] |= {"name": "other", "uid": "uid-other"}
    second.spec["storage"] = {"existingClaim": "pair-models"}
    second.spec["storage"]["accessMode"] = "ReadWriteOnce"
    second.bind()

    second.settle(lambda c: fetched(engines=keys) if c == "fetch" else {})

    assert second.named("engine") == []
    assert second.condition("Ready")["status"] == "True"


def test_engine_missing_from_the_volume_is_built_again() -> None:
    world = settled(resource())
    world.spec["speculation"]["draftTokens"] = 2
    world.step()
    publish = next(n for n in world.named("publish") if "status" not in world.jobs[n])
    error = '{"error": {"reason": "EngineMissing", "message": "missing"}}'
    world.fail(publish, error)

    world.step()
    assert world.condition("EnginesReady")["reason"] == "EngineMissing"
    assert world.named("engine") == []
    assert publish not in world.jobs

    world.step()
    assert len(world.named("engine")) == 2
    world.settle()
    world.serve()
    world.step()
    assert world.condition("Ready")["status"] == "True"


def test_job_whose_result_is_lost_runs_again() -> None:
    world = World(resource())
    world.bind()
    world.step()
    world.finish(world.job("fetch"), fetched())
    world.pods.clear()

    world.step()

    assert world.jobs == {}
    assert "runs again" in world.condition("ModelsFetched")["message"]


def test_unreadable_result_is_a_failure() -> None:
    world = World(resource())
    world.bind()
    world.step()
    world.finish(world.job("fetch"), {})

    world.step()

    fetched_ = world.condition("ModelsFetched")
    assert fetched_["reason"] == "FetchFailed"
    assert "kubectl delete job" in fetched_["message"]


def test_each_condition_has_a_reason_that_is_documented_for_it() -> None:
    world = World(resource())
    for _ in range(2):
        decision = world.step()
        assert all(c.type in (*c.reason.types, Type.READY) for c in decision.conditions)
        world.bind()
    world.settle()
    seen = {c["reason"] for c in world.cr["status"]["conditions"]}
    assert seen <= conditions.PROBLEMS | conditions.PROGRESS


def test_the_status_lists_facts_without_nulls() -> None:
    world = settled(resource())
    facts = world.cr["status"]["models"][0]["facts"]
    assert facts == {k: v for k, v in FACTS.items() if v is not None}


def test_sources_may_be_on_the_storage_claim() -> None:
    spec = {"source": {"pvc": {"claimName": "mine", "path": "t"}}, "limits": limits()}
    world = settled(
        resource(target=spec, speculation={"method": "None"}, storage={"existingClaim": "mine"})
    )
    volumes = world.jobs[world.job("fetch")]["spec"]["template"]["spec"]["volumes"]
    claims = [v["persistentVolumeClaim"]["claimName"] for v in volumes if "emptyDir" not in v]
    assert claims == ["mine"], "a pod with two volumes of one claim never starts"
    assert source("draft")["pvc"]["claimName"] not in claims
