"""Ready waits for pods of the current generation, and a stalled rollout reports its reason."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.processes import DEADLINE_SECONDS
from controlplane.operating import Lab, until
from controlplane.pipeline import at_rest, serve

pytestmark = pytest.mark.controlplane

LINE = (
    '{.metadata.generation} {.status.observedGeneration} {.status.conditions[?(@.type=="Ready")]'
    '.status} {.status.conditions[?(@.type=="Ready")].reason}{"\\n"}'
)


@pytest.fixture
def watched(lab: Lab, tmp_path: Path) -> Iterator[Path]:
    """Serve a resource; yield a file that gets a line for every later state of it."""
    file = tmp_path / "states"
    argv = [*lab.plane.kubectl_argv(), "-n", lab.namespace, "get", "specm", "pair"]
    serve(lab, "pair")
    at_rest(lab)
    with file.open("wb") as out:
        watch = subprocess.Popen([*argv, "--watch", "-o", f"jsonpath={LINE}"], stdout=out)
    until(lambda: file.read_text().strip(), "the present state")
    yield file
    watch.terminate()
    watch.wait(timeout=DEADLINE_SECONDS)


def test_ready_waits_for_pods_of_its_generation(lab: Lab, watched: Path) -> None:
    """The new pod fits on no node, while the old pod still serves."""
    before = (lab.get("specm", "pair") or {})["metadata"]["generation"]
    lab.patch("specm", "pair", {"spec": {"serving": {"nodeSelector": {"no": "such"}}}})

    def reported() -> bool:
        body = lab.get("specm", "pair") or {}
        right = body["status"]["observedGeneration"] == before + 1
        pods = lab.all("pods", "app.kubernetes.io/component=server")
        return bool(right and len(pods) == 2 and lab.condition("pair")["status"] == "False")

    until(reported, lambda: f"{watched.read_text()} {lab.describe('pair')}")
    at_rest(lab)
    states = [line.split(" ", 3) for line in watched.read_text().splitlines()]
    wrong = [state for state in states if state[1] == str(before + 1) and state[2] == "True"]
    assert wrong == [], states
    assert lab.condition("pair", "Available")["message"].endswith("; 1 of 1 pods serve requests")


def test_change_that_replaces_no_pod_keeps_ready(lab: Lab, watched: Path) -> None:
    before = (lab.get("specm", "pair") or {})["metadata"]["generation"]
    tags = {"metadata": {"servers": {"labels": {"team": "a"}}}}
    lab.patch("specm", "pair", {"spec": tags})

    def reported() -> bool:
        body = lab.get("specm", "pair") or {}
        return bool(body["status"]["observedGeneration"] == before + 1)

    until(reported, lambda: f"{watched.read_text()} {lab.describe('pair')}")
    at_rest(lab)
    states = [line.split(" ", 3) for line in watched.read_text().splitlines()]
    assert {state[2] for state in states} == {"True"}, states


def test_paused_deployment_is_reported(lab: Lab) -> None:
    serve(lab, "pair")
    lab.kubectl("rollout", "pause", "deployment", "pair")
    lab.patch("specm", "pair", {"spec": {"serving": {"sharedMemory": "64Mi"}}})
    condition = lab.wait("pair", "Available", "False", "RolloutStuck")
    assert "Deployment pair is paused" in condition["message"]
    assert "kubectl rollout resume deployment pair" in condition["message"]
    assert condition["message"].endswith("; 1 of 1 pods serve requests")
    lab.kubectl("rollout", "resume", "deployment", "pair")
    lab.wait("pair")


def test_refused_pods_are_reported_from_the_deployment(lab: Lab) -> None:
    serve(lab, "pair")
    lab.patch("specm", "pair", {"spec": {"serving": {"priorityClassName": "no-such"}}})
    condition = lab.wait("pair", "Available", "False", "RolloutStuck")
    assert "no PriorityClass with name no-such was found" in condition["message"]
    assert condition["message"].endswith("; 1 of 1 pods serve requests")
