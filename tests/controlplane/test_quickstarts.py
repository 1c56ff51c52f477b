"""The kubectl commands of README and guides on a real API server; writes are dry runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import ControlPlane
from cluster.processes import TIMEOUT
from support.quickstarts import ON_A_SERVER, ROOT, all_run_by, in_checkout

pytestmark = pytest.mark.controlplane

NAMESPACE = "quickstart"
# The namespace of manifests/install-namespaced, which must exist.
WATCHED = "team-a"
# The resources that later commands of the guides read.
THERE = ("reference-draft-target", "vllm-serve", "tensorrt-two-servers")
# These need kinds that this cluster lacks. tests/chart covers the Prometheus operator and Argo CD,
# and tests/controlplane/test_gateways.py covers the inference extension.
FOREIGN = tuple(f"{ROOT}/manifests/{name}" for name in ("monitoring", "argocd", "gateways"))
# Placeholders that a reader replaces, and names that differ between pages.
NAMES = {"NAME": "reference-draft-target", "llama": "reference-draft-target"}
COMMANDS = all_run_by(ON_A_SERVER)


@pytest.fixture(scope="module")
def cluster(installed: ControlPlane) -> Iterator[ControlPlane]:
    """Create the namespaces and the resources of the guides; yield the control plane."""
    for namespace in (NAMESPACE, WATCHED):
        installed.kubectl("create", "namespace", namespace)
    for name in THERE:
        sample = ROOT / "manifests" / "samples" / f"{name}.yaml"
        installed.kubectl("apply", "-n", NAMESPACE, "-f", str(sample))
    yield installed
    # Wait for the deletions: later tests would count further writes of the operator. The namespace
    # waits for its pods, which no kubelet ends here, so delete them by force.
    where = ("-n", NAMESPACE, "--all", TIMEOUT)
    installed.kubectl("delete", "specm,deployments,jobs", *where)
    installed.kubectl("delete", "pods", *where, "--force", "--grace-period=0")
    installed.kubectl("delete", "namespace", NAMESPACE, WATCHED, TIMEOUT)


def runnable(command: list[str], folder: Path) -> list[str]:
    """Return arguments that run the command in the test's namespace, without writing or watching.

    Paths become absolute, and `folder` gets the files that the command reads.
    """
    end = command.index(">") if ">" in command else len(command)
    argv = [NAMES.get(word, word) for word in command[1:end] if word != "-w"]
    for number, word in enumerate(argv):
        if word.startswith("--from-file="):
            key, _, file = word.removeprefix("--from-file=").rpartition("=")
            (folder / file).write_text("content")
            argv[number] = f"--from-file={key or file}={folder / file}"
    if argv[:2] == ["create", "namespace"]:
        argv[2] += "-of-a-guide"  # the namespace exists
    argv = [str(in_checkout(w)) if "manifests/" in w else w for w in argv]
    # Objects that kustomize renders name their own namespace.
    if "-k" not in argv and "-n" not in argv:
        argv += ["-n", NAMESPACE]
    if argv[0] in ("apply", "create", "delete", "label", "patch", "scale"):
        argv.append("--dry-run=server")
    if argv[0] == "delete":
        argv.append("--ignore-not-found")  # the operator runs as a process, not in a pod
    return argv


def test_guides_use_every_kubectl_verb() -> None:
    verbs = {command[1] for _, command in COMMANDS}
    rest = {"create", "delete", "describe", "get", "label", "logs", "patch", "scale"}
    assert verbs == {"apply", *rest}


def test_api_server_accepts_every_command_of_the_guides(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    done = set()
    for _, command in COMMANDS:
        argv = runnable(command, tmp_path)
        if tuple(argv) in done or any(word.startswith(FOREIGN) for word in argv):
            continue
        done.add(tuple(argv))
        output = cluster.kubectl(*argv)
        if "describe" in argv:
            assert argv[2] in output
        if "create" in argv:
            assert "created (server dry run)" in output
    assert len(done) > 10
