"""Changes of a served resource: what the operator builds, and which revision serves."""

from e2e.world import SHARED, World, length_limit, model


def owners(world: World, job: str) -> set[str]:
    live = world.find("job", job)
    assert live is not None
    return {owner["name"] for owner in live["metadata"]["ownerReferences"]}


EQUAL = [model(name, **length_limit(236)) for name in ("one", "two")]
GROWN = model("grown")
DELETED = model("deleted", **length_limit(238))


def test_equal_inputs_on_one_claim_share_one_build(world: World) -> None:
    for body in EQUAL:
        world.apply(body)
    world.ready("one")
    world.ready("two")
    jobs = world.build_jobs("one")
    assert len(jobs) == 2, "one Job for the target and one for the draft"
    assert world.build_jobs("two") == jobs
    for job in jobs:
        assert owners(world, job) == {"one", "two"}
    world.kubectl("delete", "specm", "one")
    world.wait(
        lambda: all(owners(world, job) == {"two"} for job in jobs),
        lambda: f"a build Job still names its deleted owner: {[owners(world, j) for j in jobs]}",
    )
    assert world.build_jobs("two") == jobs
    assert world.text("two", "def f(", max_tokens=4)


def test_new_limits_build_while_the_old_pods_serve(world: World) -> None:
    name = world.apply(GROWN)
    first = world.ready(name)
    with world.probed(name) as failures, world.watched(SHARED) as unfinished:
        world.patch(name, length_limit(237))
        second = world.ready(name)
    assert failures == []
    assert unfinished == []
    assert first["status"]["plan"]["engineKeys"] != second["status"]["plan"]["engineKeys"]
    served = second["status"]["serving"]["revision"]
    assert (
        served == second["status"]["repository"]["hash"] != first["status"]["serving"]["revision"]
    )


def test_suspend_frees_the_pods_and_keeps_the_engines(world: World, served: str) -> None:
    name = served
    jobs = world.build_jobs(name)
    world.patch(name, {"suspend": True})
    world.until(name, "Ready", "Suspended")
    world.wait(lambda: not world.pods(name), lambda: "pods are still there")
    engines = {e.name for e in (world.folder(SHARED) / "engines").iterdir()}
    assert set(world.get(name)["status"]["plan"]["engineKeys"].values()) <= engines
    world.patch(name, {"suspend": False})
    world.ready(name)
    assert world.build_jobs(name) == jobs
    assert world.text(name, "def f(", max_tokens=4)


def test_scale_subresource_sets_the_replicas(world: World, served: str) -> None:
    name = served
    world.kubectl("scale", "specm", name, "--replicas=2")
    world.wait(
        lambda: world.get(name)["status"].get("readyReplicas") == 2,
        lambda: "there are not two ready replicas",
    )
    assert len(world.pods(name)) == 2


def test_delete_removes_every_child_and_leaves_the_claim(world: World) -> None:
    name = world.apply(DELETED)
    world.ready(name)
    uid = world.get(name)["metadata"]["uid"]
    kinds = "jobs,pods,deployments,replicasets,services,configmaps,persistentvolumeclaims"

    def children() -> list[str]:
        return [
            f"{o['kind']}/{o['metadata']['name']}"
            for o in world.listed(kinds)
            if any(r["uid"] == uid for r in o["metadata"].get("ownerReferences", []))
            or o["metadata"].get("labels", {}).get("specdec.dev/model") == name
        ]

    assert len(children()) >= 6
    world.kubectl("delete", "specm", name)
    world.wait(lambda: not children(), lambda: f"still there: {children()}")
    assert world.find("pvc", SHARED) is not None
    assert (world.folder(SHARED) / "engines").is_dir()
