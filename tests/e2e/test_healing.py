"""Services and builds recover from killed processes, and never use unfinished artifacts."""

import pytest

from e2e.world import SHARED, World, length_limit, model


def kill(world: World, *what: str) -> None:
    """Delete pods without a grace period, as if their node were lost."""
    world.kubectl("delete", "pod", *what, "--grace-period=0", "--force", "--ignore-not-found")


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_killed_build_pod_is_replaced(world: World, phase: str) -> None:
    length = {"Pending": 233, "Running": 234}[phase]
    with world.watched(SHARED) as unfinished:
        name = world.apply(model(f"build-{phase.lower()}", **length_limit(length)))

        def pods() -> list[str]:
            return [
                pod["metadata"]["name"]
                for job in world.build_jobs(name)
                for pod in world.listed("pods", f"batch.kubernetes.io/job-name={job}")
                if phase == "Pending" or pod["status"]["phase"] in ("Running", "Succeeded")
            ]

        world.wait(lambda: bool(pods()), lambda: f"no build pod is {phase}")
        kill(world, *pods())
        world.ready(name)
    assert unfinished == []
    assert world.text(name, "def f(", max_tokens=8)


def test_killed_server_pod_is_replaced_with_the_same_engines(world: World, served: str) -> None:
    name = served
    before = world.text(name, "def f(", max_tokens=16)
    (pod,) = world.pods(name)
    jobs = world.build_jobs(name)
    kill(world, pod["metadata"]["name"])
    world.replaced(name, pod["metadata"]["uid"])
    world.ready(name)
    assert world.text(name, "def f(", max_tokens=16) == before
    assert world.build_jobs(name) == jobs


def test_ended_server_process_is_restarted(world: World, served: str) -> None:
    name = served
    (pod,) = world.pods(name)
    end = "import os, signal; os.kill(1, signal.SIGTERM)"
    world.kubectl("exec", pod["metadata"]["name"], "--", "python3", "-c", end)

    def restarted() -> bool:
        (now,) = world.pods(name)
        return bool(now["status"]["containerStatuses"][0]["restartCount"] == 1)

    world.wait(restarted, lambda: "the server was not started again")
    world.ready(name)
    assert world.text(name, "def f(", max_tokens=4)


def test_deleted_children_are_created_again(world: World, served: str) -> None:
    name = served
    world.kubectl("delete", f"service/{name}", f"deployment/{name}")
    for kind in ("service", "deployment"):
        world.wait(
            lambda kind=kind: world.find(kind, name) is not None,  # type: ignore[misc]
            lambda kind=kind: f"the {kind} is not back",  # type: ignore[misc]
        )
    world.ready(name)
