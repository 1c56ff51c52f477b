"""The kubectl commands of README and guides against a real API server, but for their last step."""

from collections.abc import Iterator

import pytest

from cluster import ControlPlane
from support.quickstarts import ON_A_SERVER, ROOT, all_run_by

pytestmark = pytest.mark.controlplane

NAMESPACE = "quickstart"
# What the guides' later commands look at.
THERE = ("reference-draft-target", "tensorrt-fp8-one-gpu", "tensorrt-two-servers")
# They need kinds of the Prometheus operator and of Argo CD: tests/chart asks for those.
FOREIGN = (f"{ROOT}/manifests/monitoring", f"{ROOT}/manifests/argocd")
COMMANDS = all_run_by(ON_A_SERVER)


@pytest.fixture(scope="module")
def cluster(installed: ControlPlane) -> Iterator[ControlPlane]:
    """A namespace with the resources of both quick starts."""
    installed.kubectl("create", "namespace", NAMESPACE)
    for name in THERE:
        sample = ROOT / "manifests" / "samples" / f"{name}.yaml"
        installed.kubectl("apply", "-n", NAMESPACE, "-f", str(sample))
    yield installed
    # To the end: what the operator still writes there would count for the tests that follow.
    # With pods in it a namespace takes as long as they may, though nobody here lets them wait.
    where = ("-n", NAMESPACE, "--all", "--timeout=120s")
    installed.kubectl("delete", "specm,deployments,jobs", *where)
    installed.kubectl("delete", "pods", *where, "--force", "--grace-period=0")
    installed.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s")


def runnable(command: list[str]) -> list[str]:
    """The command from anywhere, into our namespace, without an end that never comes."""
    words = [word for word in command[1:] if word != "-w"]
    words = [str(ROOT / w) if w.startswith("manifests/") else w for w in words]
    # What kustomize renders names its own namespace.
    if "-k" not in words and "-n" not in words:
        words += ["-n", NAMESPACE]
    if words[0] in ("apply", "create", "delete"):
        words.append("--dry-run=server")
    if words[0] == "delete":
        words.append("--ignore-not-found")  # the operator runs beside the cluster, in no pod
    return words


def test_there_is_something_of_every_kind() -> None:
    verbs = {command[1] for _, command in COMMANDS}
    assert verbs == {"apply", "create", "delete", "describe", "get", "logs"}


def test_the_server_takes_every_command(cluster: ControlPlane) -> None:
    done = set()
    for _, command in COMMANDS:
        words = runnable(command)
        if tuple(words) in done or any(word.startswith(FOREIGN) for word in words):
            continue
        done.add(tuple(words))
        told = cluster.kubectl(*words)
        if "describe" in words:
            assert words[2] in told
        if "create" in words:
            assert "created (server dry run)" in told
    assert len(done) > 10
