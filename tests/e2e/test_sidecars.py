"""A resource's sidecar runs beside the server, under the same security rules."""

from demo.machine import IMAGES
from e2e.world import World, model

# A sidecar should end at once on SIGTERM. This program waits for the signal explicitly: the kernel
# drops a signal that the first process of a container neither handles nor blocks.
_UNTIL_STOPPED = (
    "import signal; stop = {signal.SIGTERM}; "
    "signal.pthread_sigmask(signal.SIG_BLOCK, stop); signal.sigwait(stop)"
)
SIDECAR = {
    "name": "log-shipper",
    "image": IMAGES["operator"],
    "command": ["python3", "-c", _UNTIL_STOPPED],
    "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
}
BESIDE = model("beside", serving={"sidecars": [SIDECAR]})


def test_sidecar_runs_beside_the_server_until_it_is_removed(world: World) -> None:
    name = world.apply(BESIDE)
    world.ready(name)
    (pod,) = world.pods(name)
    (status,) = pod["status"]["initContainerStatuses"]
    assert status["name"] == "log-shipper"
    assert "running" in status["state"], status
    (container,) = pod["spec"]["initContainers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert world.text(name, "def f(", max_tokens=4)

    world.patch(name, {"serving": {"sidecars": []}})
    world.replaced(name, pod["metadata"]["uid"])
    world.ready(name)
    world.left(name, 1)
    (pod,) = world.pods(name)
    assert "initContainers" not in pod["spec"]
    assert world.text(name, "def f(", max_tokens=4)
