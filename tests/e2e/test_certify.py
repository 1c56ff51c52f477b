"""`specdec certify` on the real node: the matrix of the Reference backend, interrupted once.

It runs with the rights that docs/certify.md lists, and no others.
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

from e2e.world import Object, World

ROOT = Path(__file__).parents[2]
ACCOUNT = "certifier"
TRIED = {"baseline", "draft-target-shared", "logits", "lookahead"}
SECONDS = 600


@pytest.fixture
def login(world: World, tmp_path: Path) -> Path:
    """A kubeconfig of an account with the rights of the page."""
    page = (ROOT / "docs" / "certify.md").read_text("utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    objects: list[Object] = [{"kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}]
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "default"}
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
    config = yaml.safe_load(world.node.kubeconfig.read_text("utf-8"))
    token = world.kubectl("create", "token", ACCOUNT, "--duration=1h").strip()
    users = [{**user, "user": {"token": token}} for user in config["users"]]
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump({**config, "users": users}), "utf-8")
    return file


def start(login: Path, out: Path, *arguments: str) -> subprocess.Popen[str]:
    """The command as a user starts it, with few prompts."""
    # A process group in the background ignores the signal, and hands that on to its children.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    short = ("--prompts", "4", "--output-tokens", "16", "--timeout", "8")
    argv = ("certify", "--backend", "Reference", "-n", "default", "-o", str(out), *short)
    process = subprocess.Popen(
        [sys.executable, "-m", "specdec.cli", *argv, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "KUBECONFIG": str(login)},
    )
    signal.signal(signal.SIGINT, previous)
    return process


def entry(out: Path, name: str) -> Object:
    """The result of an entry; empty before it starts."""
    file = out / "entries" / name / "result.json"
    document: Object = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return document


def resources(world: World) -> dict[str, str]:
    """Names and uids of the resources that certify has created."""
    listed = world.listed("specm", "certify.specdec.dev/run")
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in listed}


def test_reference_matrix_passes_after_an_interruption(
    world: World, login: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    first = start(login, out)
    second = "certify-draft-target-shared"
    try:
        world.wait(
            lambda: first.poll() is not None or second in resources(world),
            SECONDS,
            lambda: "certify does not come to its second entry",
        )
    finally:
        first.send_signal(signal.SIGINT)
        _, errors = first.communicate(timeout=60)
    assert first.returncode == 130, errors
    assert "the same command continues" in errors
    before, baseline = resources(world), entry(out, "baseline")
    assert list(before) == [second]
    assert baseline["outcome"] == "passed"

    again = start(login, out)
    output, errors = again.communicate(timeout=SECONDS)
    results = {name: entry(out, name) for name in TRIED}
    assert again.returncode == 0, (errors, results)
    assert "4 of 4 passed, 7 not tried" in output
    assert results["baseline"] == baseline, "a finished entry ran twice"
    kept = json.loads(
        (out / f"entries/{second.removeprefix('certify-')}/resource.json").read_text()
    )
    assert kept["metadata"]["uid"] == before[second], "the open resource was created again"

    for name, result in results.items():
        one, eight = result["throughput"]["levels"]
        assert one["failed"] == eight["failed"] == 0
        assert min(one["tokensPerSecond"], eight["tokensPerSecond"]) > 0
        # The engine is exact: every method gives the answers of the target alone.
        assert result["throughput"]["answers"] == baseline["throughput"]["answers"], name
        assert result["notes"] == [], "a right is missing in docs/certify.md"
    for name in ("draft-target-shared", "logits"):
        (server,) = results[name]["servers"]
        assert 0 < server["accepted"] <= server["drafted"]
        conditions = {c["type"]: c["reason"] for c in results[name]["status"]["conditions"]}
        assert conditions["OutputEquivalent"] == "Equivalent"
        assert conditions["BenchmarkCompleted"] == "Completed"

    assert resources(world) == {}
    assert world.kubectl.get("pvc", "specdec-certify") is None
    with tarfile.open(out / "specdec-certify.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"index.html", "run.json", "entries/lookahead/status.json"} <= names
    assert any(name.startswith("entries/logits/logs/certify-logits-") for name in names)
    assert any(name.startswith("entries/logits/metrics/specdec-operator-") for name in names)
    token = yaml.safe_load(login.read_text("utf-8"))["users"][0]["user"]["token"]
    written = [file for file in out.rglob("*") if file.is_file()]
    assert not [file for file in written if token.encode() in file.read_bytes()]
