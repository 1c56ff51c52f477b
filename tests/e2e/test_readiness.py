"""The kubelet reports a pod as ready only while both engines of the pod give tokens."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.world import SHARED, World, answers
from specdec.api import names
from specdec.triton import start

TARGET, DRAFT = "tensorrt_llm", "tensorrt_llm_draft"
NAME = "orchestrator"
# SIMULATION: a pre-spawned orchestrator, whose ranks load until the test ends their load.
SIMULATED = """
parameters { key: "simulated_load_seconds" value { string_value: "3600" } }
parameters { key: "simulated_ready_early" value { string_value: "true" } }
"""
SIGNAL = """
import os, pathlib
for folder in pathlib.Path("/proc").glob("[0-9]*"):
    argv = (folder / "cmdline").read_bytes().split(b"\\0")
    if {engine!r} in argv and any(word.endswith(b"simulated_rank.py") for word in argv):
        os.kill(int(folder.name), {number})
"""
READY = """
import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:8000/v2/health/ready").status)
"""
SIGKILL, SIGUSR1 = 9, 10
# Seconds without progress after which the liveness probe fails. The operator sets 60 or more.
PATIENCE = 10


class Pod:
    """A pod from the operator's template, with simulated ranks in its server."""

    def __init__(self, world: World) -> None:
        self._world = world

    def status(self) -> dict[str, Any]:
        """Return the pod's status."""
        pod = self._world.find("pod", NAME)
        assert pod is not None, "the pod is missing"
        return dict(pod["status"])

    def ready(self) -> bool:
        """Return whether the kubelet reports the pod as ready."""
        return answers({"status": self.status()})

    def python(self, program: str) -> str:
        """Run a program in the server's container, and return its output."""
        return self._world.kubectl("exec", NAME, "-c", "server", "--", "python3", "-c", program)

    def reports_itself_ready(self) -> bool:
        """Return whether Triton reports itself and its models as ready."""
        return self.python(READY).strip() == "200"

    def signal(self, engine: str, number: int) -> None:
        """Send a signal to the rank of an engine."""
        self.python(SIGNAL.format(engine=engine.encode(), number=number))

    def await_event(self, *parts: str) -> None:
        """Wait until the message of an event of the pod contains all parts."""

        def reported() -> bool:
            notes = [
                event["note"]
                for event in self._world.listed("events.events.k8s.io")
                if event.get("regarding", {}).get("name") == NAME
            ]
            return any(all(part in note for part in parts) for note in notes)

        self._world.wait(reported, lambda: f"no event of the pod has {parts}")


@pytest.fixture
def pod(world: World, served: str) -> Iterator[Pod]:
    """Yield a pod that is made from the Deployment of a served resource."""
    deployment = world.find("deployment", served)
    assert deployment is not None
    root = world.folder(SHARED)
    hashed = deployment["metadata"]["annotations"][names.REPOSITORY]
    copy = root / "simulated"
    shutil.copytree(root / "repositories" / hashed, copy)
    for engine in (TARGET, DRAFT):
        with (copy / engine / "config.pbtxt").open("a", encoding="utf-8") as config:
            config.write(SIMULATED)
    spec = deployment["spec"]["template"]["spec"]
    (server,) = spec["containers"]
    server["command"] = [
        f"--model-repository={names.VOLUME}/simulated"
        if argument.startswith("--model-repository=")
        else argument
        for argument in start.server(server["command"])
    ]
    liveness = server["livenessProbe"]["exec"]["command"]
    assert float(liveness[-1]) >= 60
    liveness[-1] = str(PATIENCE)
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME}, "spec": spec}
    try:
        world.kubectl("apply", "-f", "-", given=json.dumps(body))
        yield Pod(world)
    finally:
        world.kubectl("delete", "pod", NAME, "--grace-period=0", "--force", "--ignore-not-found")
        shutil.rmtree(copy)


def test_pod_is_ready_only_while_both_engines_give_tokens(world: World, pod: Pod) -> None:
    world.wait(pod.reports_itself_ready, lambda: f"not served: {pod.status()}")
    pod.await_event("Startup probe failed", f"{TARGET} gave no token")
    pod.signal(TARGET, SIGUSR1)
    pod.await_event("Startup probe failed", f"{DRAFT} gave no token")
    assert pod.reports_itself_ready()
    assert not pod.ready()

    pod.signal(DRAFT, SIGUSR1)
    world.wait(pod.ready, lambda: f"not ready: {pod.status()}")
    (server,) = pod.status()["containerStatuses"]
    assert server["restartCount"] == 0

    pod.signal(TARGET, SIGKILL)
    pod.await_event("Readiness probe failed", f"{TARGET} gave no token")
    world.wait(lambda: not pod.ready(), lambda: f"still ready: {pod.status()}")
    assert pod.reports_itself_ready()
    pod.await_event("Liveness probe failed", f"{TARGET}: no token and no progress")
    assert not pod.ready()
