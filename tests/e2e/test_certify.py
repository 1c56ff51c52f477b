"""`specdec certify` on the real node: two entries with an interruption, and the whole matrix.

The command runs with only the permissions that docs/certify.md lists.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from cluster.processes import DEADLINE_SECONDS
from e2e.printed import as_printed
from e2e.world import NAMESPACE, Object, World

ROOT = Path(__file__).parents[2]
ACCOUNT = "certifier"
# `make test` tests these entries, and `make nightly` all of them.
FEW = ("baseline", "draft-target-shared")
ALL = (*FEW, "logits", "lookahead", "ngram")


@pytest.fixture(scope="module")
def login(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a kubeconfig of an account with the permissions that docs/certify.md lists."""
    page = (ROOT / "docs" / "certify.md").read_text("utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    objects: list[Object] = [{"kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}]
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
    for role in yaml.safe_load_all(block):
        reference = {"kind": role["kind"], "name": role["metadata"]["name"]}
        binding = {
            "apiVersion": role["apiVersion"],
            "kind": f"{role['kind']}Binding",
            "metadata": role["metadata"],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", **reference},
            "subjects": [subject],
        }
        objects += [role, binding]
    for item in objects:
        world.kubectl("apply", "-f", "-", given=json.dumps({"apiVersion": "v1", **item}))
    config = yaml.safe_load(world.kubeconfig.read_text("utf-8"))
    token = world.kubectl("create", "token", ACCOUNT, "--duration=1h").strip()
    users = [{**user, "user": {"token": token}} for user in config["users"]]
    file = tmp_path_factory.mktemp("login") / "kubeconfig"
    file.write_text(yaml.safe_dump({**config, "users": users}), "utf-8")
    return file


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the output folder; the second test continues the run of the first test in it."""
    return tmp_path_factory.mktemp("certify") / "out"


def start(login: Path, out: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the command as a user does, with few prompts."""
    # A process group in the background ignores SIGINT, and its children inherit that.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    short = ("--prompts", "4", "--output-tokens", "16", "--timeout", "8")
    argv = ("certify", "--backend", "Reference", "-o", str(out), *short)
    process = subprocess.Popen(
        [sys.executable, "-m", "specdec.tools.cli", *argv, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "KUBECONFIG": str(login)},
    )
    signal.signal(signal.SIGINT, previous)
    return process


def entry(out: Path, name: str) -> Object:
    """Return the result of an entry; it is empty before the entry starts."""
    file = out / "entries" / name / "result.json"
    document: Object = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return document


def resources(world: World) -> dict[str, str]:
    """Return names and uids of the resources that certify has created."""
    listed = world.listed("specm", "certify.specdec.dev/run")
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in listed}


@pytest.mark.usefixtures("gpus")
def test_list_is_as_printed(world: World, login: Path) -> None:
    listed = as_printed(world, ["specdec", "certify", "--list"], login=login).stdout
    rows = {line.split()[0]: line for line in listed.splitlines()}
    assert rows.keys() >= {*FEW, "eagle"}, listed


def test_interrupted_run_continues_and_passes(world: World, login: Path, out: Path) -> None:
    only = ("--only", ",".join(FEW))
    first = start(login, out, *only)
    second = "certify-draft-target-shared"
    try:
        world.wait(
            lambda: first.poll() is not None or second in resources(world),
            lambda: "certify does not come to its second entry",
        )
    finally:
        first.send_signal(signal.SIGINT)
        _, errors = first.communicate(timeout=DEADLINE_SECONDS)
    assert first.returncode == 130, errors
    assert "the same command continues" in errors
    before, baseline = resources(world), entry(out, "baseline")
    assert list(before) == [second]
    assert baseline["outcome"] == "passed"

    again = start(login, out, *only)
    output, errors = again.communicate(timeout=2 * DEADLINE_SECONDS)
    assert again.returncode == 0, (errors, [entry(out, name) for name in FEW])
    assert "2 of 2 passed" in output
    assert entry(out, "baseline") == baseline, "a finished entry ran twice"
    kept = json.loads(
        (out / f"entries/{second.removeprefix('certify-')}/resource.json").read_text()
    )
    assert kept["metadata"]["uid"] == before[second], "the open resource was created again"
    assert_passed(world, login, out, FEW)


@pytest.mark.nightly
def test_whole_matrix_passes(world: World, login: Path, out: Path) -> None:
    """The run of the test above continues: certify does not repeat entries that passed there."""
    process = start(login, out)
    output, errors = process.communicate(timeout=2 * DEADLINE_SECONDS)
    assert process.returncode == 0, (errors, [entry(out, name) for name in ALL])
    assert "5 of 5 passed, 11 not tried" in output
    assert_passed(world, login, out, ALL)


def assert_passed(world: World, login: Path, out: Path, names: tuple[str, ...]) -> None:
    """Check that every entry passed, the cluster is clean, and the archive is complete."""
    results = {name: entry(out, name) for name in names}
    for name, result in results.items():
        one, eight = result["throughput"]["levels"]
        assert one["failed"] == eight["failed"] == 0
        assert min(one["tokensPerSecond"], eight["tokensPerSecond"]) > 0
        # The engine is exact: with every method, answers equal those of the target alone. The
        # operator compares them where it benchmarks.
        answers = results["baseline"]["throughput"]["answers"]
        conditions = {c["type"]: c["reason"] for c in result["status"]["conditions"]}
        if result["status"].get("benchmark"):
            assert conditions["OutputEquivalent"] == "Equivalent", name
        else:
            assert result["throughput"]["answers"] == answers, name
        assert result["notes"] == [], "a right is missing in docs/certify.md"
    with_draft = results.keys() & {"draft-target-shared", "logits"}
    for name in with_draft:
        (server,) = results[name]["servers"]
        assert 0 < server["accepted"] <= server["drafted"]
        conditions = {c["type"]: c["reason"] for c in results[name]["status"]["conditions"]}
        assert conditions["OutputEquivalent"] == "Equivalent"
        assert conditions["BenchmarkCompleted"] == "Completed"

    assert resources(world) == {}
    assert world.find("pvc", "specdec-certify") is None
    with tarfile.open(out / "specdec-certify.tar.gz") as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    assert {"index.html", "run.json"} | {f"entries/{n}/status.json" for n in names} <= files
    for name in with_draft:
        assert any(f.startswith(f"entries/{name}/logs/certify-{name}-") for f in files)
        assert any(f.startswith(f"entries/{name}/metrics/specdec-operator-") for f in files)
    token = yaml.safe_load(login.read_text("utf-8"))["users"][0]["user"]["token"]
    written = [file for file in out.rglob("*") if file.is_file()]
    assert not [file for file in written if token.encode() in file.read_bytes()]
