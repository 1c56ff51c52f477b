"""Two resources on one claim with equal engines share a Job for each engine."""

from specdec.api import names
from support.simulated_cluster import World, fetched, merge, resource


def pair() -> tuple[World, World]:
    """Return two resources on one claim whose engines, and so their Jobs, are equal."""
    storage = {"existingClaim": "shared"}
    first, second = World(resource(storage=storage)), World(resource(storage=storage))
    second.cr["metadata"] |= {"name": "other", "uid": "uid-other"}
    for world in (first, second):
        world.bind()
        world.step()
        world.finish(world.job("fetch"), fetched())
    return first, second


def share(first: World, second: World) -> None:
    """Let the second resource observe the first one's engine Jobs."""
    for name in first.named("engine"):
        second.jobs[name] = first.jobs[name]


def test_second_resource_joins_the_job_and_changes_nothing_else() -> None:
    first, second = pair()
    first.step()
    share(first, second)

    decision = second.step()

    joined = [obj for obj in decision.apply if obj["kind"] == "Job"]
    assert len(joined) == 2
    assert all(set(obj) == {"apiVersion", "kind", "metadata"} for obj in joined)
    job = first.jobs[first.named("engine")[0]]
    assert {o["name"] for o in job["metadata"]["ownerReferences"]} == {"pair", "other"}
    assert names.sharer("pair") in job["metadata"]["labels"]
    assert names.sharer("other") in job["metadata"]["labels"]
    assert [o for o in second.step().apply if o["kind"] == "Job"] == []


def test_shared_objects_do_not_depend_on_the_resource() -> None:
    first, second = pair()
    one, two = first.step(), second.step()
    for mine, theirs in zip(one.apply, two.apply, strict=True):
        assert mine["metadata"]["name"] == theirs["metadata"]["name"]
        assert mine.get("spec") == theirs.get("spec")
        assert mine.get("data") == theirs.get("data")


def test_job_that_another_resource_needs_is_not_deleted() -> None:
    first, second = pair()
    first.step()
    share(first, second)
    second.step()
    before = first.named("engine")

    first.spec["suspend"] = True
    first.step()
    assert first.named("engine") == before

    first.spec["suspend"] = False
    first.spec["build"] = {"nodeSelector": {"a": "b"}}
    first.step()
    assert set(before) <= set(first.named("engine"))


def test_engines_of_other_limits_are_not_shared() -> None:
    first, second = pair()
    second.spec["target"]["limits"]["maxSeqLen"] = 300
    first.step()
    second.step()
    shared = set(first.named("engine")) & set(second.named("engine"))
    assert len(shared) == 1


def test_shared_objects_have_no_label_of_a_single_resource() -> None:
    first, _ = pair()
    decision = first.step()
    engines = [o for o in decision.apply if names.ENGINE in o["metadata"]["labels"]]
    assert len(engines) == 4
    for obj in engines:
        assert names.MODEL not in obj["metadata"]["labels"]
        template = obj.get("spec", {}).get("template", {})
        assert names.sharer("pair") not in template.get("metadata", {}).get("labels", {})


def test_simulated_merge_is_server_side_apply() -> None:
    live = {"labels": {"a": "1"}, "ownerReferences": [{"uid": "x"}]}
    merge(live, {"labels": {"b": "2"}, "ownerReferences": [{"uid": "x"}, {"uid": "y"}]})
    assert live == {
        "labels": {"a": "1", "b": "2"},
        "ownerReferences": [{"uid": "x"}, {"uid": "y"}],
    }
