"""The kubectl commands of README and guides against a real API server, without their last step."""

from collections.abc import Iterator

import pytest

from cluster import ControlPlane
from support.quickstarts import ON_A_SERVER, ROOT, all_run_by, in_checkout

pytestmark = pytest.mark.controlplane

NAMESPACE = "quickstart"
# The resources that later commands of the guides read.
THERE = ("reference-draft-target", "tensorrt-fp8-one-gpu", "tensorrt-two-servers")
# They need kinds of the Prometheus operator and of Argo CD: tests/chart covers those.
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
    # A namespace with pods waits for them, although no kubelet runs them here.
    where = ("-n", NAMESPACE, "--all", "--timeout=120s")
    installed.kubectl("delete", "specm,deployments,jobs", *where)
    installed.kubectl("delete", "pods", *where, "--force", "--grace-period=0")
    installed.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s")


def runnable(command: list[str]) -> list[str]:
    """The command from anywhere, into our namespace, without an end that never comes."""
    argv = [word for word in command[1:] if word != "-w"]
    argv = [str(in_checkout(w)) if "manifests/" in w else w for w in argv]
    # What kustomize renders names its own namespace.
    if "-k" not in argv and "-n" not in argv:
        argv += ["-n", NAMESPACE]
    if argv[0] in ("apply", "create", "delete"):
        argv.append("--dry-run=server")
    if argv[0] == "delete":
        argv.append("--ignore-not-found")  # the operator runs beside the cluster, in no pod
    return argv


def test_guides_use_every_kubectl_verb() -> None:
    verbs = {command[1] for _, command in COMMANDS}
    assert verbs == {"apply", "create", "delete", "describe", "get", "logs"}


def test_api_server_accepts_every_command_of_the_guides(cluster: ControlPlane) -> None:
    done = set()
    for _, command in COMMANDS:
        argv = runnable(command)
        if tuple(argv) in done or any(word.startswith(FOREIGN) for word in argv):
            continue
        done.add(tuple(argv))
        output = cluster.kubectl(*argv)
        if "describe" in argv:
            assert argv[2] in output
        if "create" in argv:
            assert "created (server dry run)" in output
    assert len(done) > 10
