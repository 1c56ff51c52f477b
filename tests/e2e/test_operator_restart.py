"""The operator resumes its work after a crash."""

from chart.helm import NAMESPACE
from e2e.conftest import rolled_out
from e2e.world import SHARED, World, length_limit, model


def test_killed_operator_pod_resumes_the_build(world: World) -> None:
    with world.watched(SHARED) as unfinished:
        name = world.apply(model("operator", **length_limit(235)))
        world.wait(lambda: bool(world.build_jobs(name)), lambda: "no build Job")
        everything = ("pod", "-n", NAMESPACE, "--all", "--grace-period=0", "--force")
        world.kubectl("delete", *everything)
        world.ready(name)
    assert unfinished == []
    assert len(world.build_jobs(name)) == 2
    rolled_out(world.kubectl)
