"""User mistakes: for each mistake, a condition names the fix, and no data is lost."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.errors import DemoError
from e2e.checkpoints import Copies
from e2e.world import World, model, source

PAUSE = "localhost/specdec-pause:1"
IMAGE = "localhost/no-such-image:1"
TINY = {
    "existingClaim": None,
    "size": "1Gi",
    "storageClassName": "specdec-tiny",
    "accessMode": "ReadWriteOnce",
}
# With a hundredth of a core, a server does not load within the shortest startup budget.
CRAWLING = {
    "probes": {"startupBudgetSeconds": 30},
    "drain": {"timeoutSeconds": 0},
    "resources": {"requests": {"cpu": "10m"}, "limits": {"cpu": "10m"}},
}
# Lasting faults that appear slowly: all of them are applied before the first test.
LASTING = {
    body["metadata"]["name"]: body
    for body in (
        model("slow", serving=CRAWLING),
        model("damaged", claim=None),
        model("full", storage=TINY),
        # The pause image has none of the programs that a build needs.
        model("broken", runtime={"image": PAUSE}, build={"backoffLimit": 0}),
        model("imageless", runtime={"image": IMAGE}),
    )
}


@pytest.fixture(scope="module", autouse=True)
def _begun(world: World) -> Iterator[None]:
    for body in LASTING.values():
        world.apply(body, keep=True)
    yield
    world.kubectl("delete", "specm", *LASTING, "--ignore-not-found")


def with_draft(name: str, path: str) -> dict[str, Any]:
    return model(name, speculation={"draftTarget": {"draft": {"source": source(path)}}})


def test_draft_with_another_tokenizer_gets_no_build_job(world: World, copies: Copies) -> None:
    folder = copies("draft", "odd-draft")
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    first, second = list(vocabulary)[300:302]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    file.write_text(json.dumps(tokenizer))
    name = world.apply(with_draft("odd", "odd-draft"))
    condition = world.until(name, "Compatible", "TokenizerMismatch")
    assert condition["status"] == "False"
    assert "tokenizer" in condition["message"]
    assert world.build_jobs(name) == {}
    assert world.condition(name, "Ready")["reason"] == "TokenizerMismatch"


def test_corrupt_safetensors_are_reported(world: World, copies: Copies) -> None:
    folder = copies("draft", "cut-draft")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    name = world.apply(with_draft("cut", "cut-draft"))
    condition = world.until(name, "ModelsFetched", "CheckpointCorrupt")
    assert "model.safetensors" in condition["message"]
    # The Job is not retried. The Job controller reports that a moment later.
    world.wait(
        lambda: "kubectl delete job" in world.condition(name, "ModelsFetched")["message"],
        lambda: world.condition(name, "ModelsFetched")["message"],
    )


def test_unsupported_architecture_is_reported(world: World, copies: Copies) -> None:
    folder = copies("target", "odd-target")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["Mystery"]}))
    name = world.apply(model("mystery", target={"source": source("odd-target")}))
    condition = world.until(name, "Compatible", "ArchitectureNotServed")
    assert "Mystery" in condition["message"]


def test_missing_source_path_is_reported(world: World) -> None:
    name = world.apply(with_draft("lost", "no/such/path"))
    assert "no/such/path" in world.until(name, "ModelsFetched", "SourceNotFound")["message"]


def test_missing_secret_is_reported(world: World) -> None:
    reference = {"name": "no-such-secret", "key": "token"}
    hub = {"repo": "a/b", "endpoint": "http://127.0.0.1:9", "tokenSecretRef": reference}
    name = world.apply(model("secretive", target={"source": {"pvc": None, "huggingFace": hub}}))
    assert "no-such-secret" in world.until(name, "ModelsFetched", "SecretMissing")["message"]


def test_missing_claim_is_reported(world: World) -> None:
    name = world.apply(model("claimless", claim="no-such-claim"))
    assert "no-such-claim" in world.until(name, "StorageReady", "ClaimNotFound")["message"]


def test_pending_claim_is_reported(world: World) -> None:
    storage = {"existingClaim": None, "size": "1Ti", "accessMode": "ReadWriteOnce"}
    name = world.apply(model("huge", storage=storage))
    assert "huge-models" in world.until(name, "StorageReady", "ClaimPending")["message"]


def test_image_pull_failure_is_reported(world: World) -> None:
    name = world.apply(LASTING["imageless"])
    condition = world.until(name, "EnginesReady", "ImagePullFailed")
    assert IMAGE in condition["message"]


def test_failed_build_reports_its_error(world: World) -> None:
    name = world.apply(LASTING["broken"])
    condition = world.until(name, "EnginesReady", "BuildFailed")
    assert 'exec: "python3": executable file not found' in condition["message"]
    assert "kubectl delete job" in condition["message"]


def test_full_volume_is_reported(world: World) -> None:
    name = world.apply(LASTING["full"])
    world.until(name, "StorageReady", "Bound")

    def full() -> bool:
        conditions = world.get(name).get("status", {}).get("conditions", [])
        return any(c["reason"] == "VolumeFull" for c in conditions)

    world.wait(full, lambda: json.dumps(world.get(name).get("status", {})))
    reason = world.condition(name, "Ready")
    assert reason["reason"] == "VolumeFull"
    assert "free space" in reason["message"]


def test_server_that_cannot_load_reports_its_error(world: World) -> None:
    name = world.apply(LASTING["damaged"])
    key = world.ready(name)["status"]["plan"]["engineKeys"]["draft"]
    spoil(world.folder(f"{name}-models") / "engines" / key / "rank0.engine")
    (pod,) = world.pods(name)
    world.kubectl("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force")
    condition = world.until(name, "Available", "CrashLoop")
    assert key[:12] in condition["message"]
    # After a failed load, the publish Job reads every file.
    world.ready(name)
    notes = [event.get("note", "") for event in world.listed("events.events.k8s.io")]
    sentence = f"the draft engine {key[:16]} is damaged (rank0.engine has other content)"
    assert any(sentence in note for note in notes)


def spoil(engine: Path) -> None:
    """Damage a file like a failing disk: change its content, but not its size or times."""
    before = engine.stat()
    with engine.open("r+b") as file:
        file.write(b"\0" * 16)
    os.utime(engine, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_server_startup_timeout_is_reported(world: World) -> None:
    name = world.apply(LASTING["slow"])
    condition = world.until(name, "Available", "StartupTimeout")
    assert "within 30 seconds" in condition["message"]
    assert "startupBudgetSeconds" in condition["message"]
    assert world.condition(name, "Ready")["reason"] == "StartupTimeout"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"speculation": {"draftTokens": 9}}, "draftTokens"),
        ({"speculation": {"method": "Guess"}}, "Unsupported value"),
        ({"speculation": {"method": "MTP"}}, "only backends PyTorch and VLLM draft"),
        ({"speculation": {"method": "Eagle"}}, "only backends TensorRT and VLLM draft"),
        ({"storage": {"size": "1Gi"}}, "existingClaim"),
        ({"storage": {"existingClaim": None}}, "existingClaim"),
    ],
)
def test_invalid_resource_is_refused_by_the_api_server(
    world: World, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(DemoError, match=message):
        world.apply(model("refused", **change))
