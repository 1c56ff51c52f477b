"""Checkpoints from a hub: download, resume, reuse and errors."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specdec.jobs import result
from unit.jobs.checkpoints import claim, config, run, tensors, tokenizer, visible
from unit.jobs.fake_hub import COMMIT, Hub, serving
from unit.jobs.termination import read_result


def hub_files(**files: Any) -> dict[str, bytes]:
    return {
        "config.json": json.dumps(config()).encode(),
        "tokenizer.json": json.dumps(tokenizer()).encode(),
        "model.safetensors": tensors(b"\1\2" * 40_000),
        "README.md": b"not needed",
        "onnx/model.safetensors": b"not needed either",
        **files,
    }


def source(hub: Hub, **changed: str) -> dict[str, Any]:
    return {"huggingFace": {"repo": "acme/model", "endpoint": hub.url, **changed}}


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving(Hub(hub_files())) as running:
        yield running


def test_checkpoint_is_fetched_from_a_hub(hub: Hub, volume: Path) -> None:
    assert run({"target": source(hub)}, volume) == 0

    model = read_result()["models"]["target"]
    assert model["revision"] == COMMIT
    folder = volume / "checkpoints" / model["digest"]
    assert sorted(p.name for p in folder.iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    assert (folder / "model.safetensors").read_bytes() == hub.files["model.safetensors"]
    assert hub.gets("README.md") == []


def test_second_fetch_of_the_same_commit_downloads_nothing(hub: Hub, volume: Path) -> None:
    assert run({"target": source(hub), "draft": source(hub)}, volume) == 0
    assert len(hub.gets("model.safetensors")) == 1
    assert run({"target": source(hub, revision=COMMIT)}, volume) == 0
    assert len(hub.gets("model.safetensors")) == 1
    assert read_result()["models"]["target"]["revision"] == COMMIT


def test_hub_and_claim_give_equal_checkpoints_the_same_digest(
    hub: Hub, volume: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "draft" / "model"
    folder.mkdir(parents=True)
    for name, data in hub.files.items():
        if "/" not in name:
            (folder / name).write_bytes(data)
    assert run({"target": source(hub), "draft": claim()}, volume) == 0
    models = read_result()["models"]
    assert models["target"]["digest"] == models["draft"]["digest"]


def test_broken_download_is_resumed(hub: Hub, volume: Path) -> None:
    hub.cut = 30_000
    assert run({"target": source(hub)}, volume) == 0
    assert hub.gets("model.safetensors") == ["bytes=0-", "bytes=30000-"]
    digest = read_result()["models"]["target"]["digest"]
    folder = volume / "checkpoints" / digest
    assert (folder / "model.safetensors").read_bytes() == hub.files["model.safetensors"]


def test_partial_file_of_a_killed_job_is_removed(
    hub: Hub, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise SystemExit(143)

    with monkeypatch.context() as patch:
        patch.setattr("specdec.jobs.hugging_face.Repository.download", killed)
        with pytest.raises(SystemExit):
            run({"target": source(hub)}, volume)
    (scratch,) = (volume / "checkpoints").glob(".download-*")
    half = scratch / ".cache" / "x.incomplete"
    half.parent.mkdir()
    half.write_bytes(b"half")

    with monkeypatch.context() as patch:
        patch.setattr("specdec.jobs.hugging_face.Repository.download", killed)
        with pytest.raises(SystemExit):
            run({"target": source(hub)}, volume)
    assert not half.exists()
    assert run({"target": source(hub)}, volume) == 0
    assert len(read_result()["models"]["target"]["digest"]) == 64


def test_complete_files_of_a_killed_job_are_kept(
    hub: Hub, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise SystemExit(143)

    with monkeypatch.context() as patch:
        patch.setattr("specdec.jobs.remote_artifact.settled", killed)
        with pytest.raises(SystemExit):
            run({"target": source(hub)}, volume)
    assert visible(volume) == []

    assert run({"target": source(hub)}, volume) == 0
    assert len(hub.gets("model.safetensors")) == 1
    assert len(visible(volume)) == 1
    assert [p.name for p in (volume / "checkpoints").glob(".download-*")] == []
    assert len(read_result()["models"]["target"]["digest"]) == 64


def test_token_gives_access_to_a_private_repository(
    hub: Hub, volume: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.token = "hf_secret"
    assert run({"draft": source(hub)}, volume) == result.PERMANENT
    error = read_result()["error"]
    assert error["reason"] == "AuthFailed"
    assert "the Secret of the draft's huggingFace.tokenSecretRef" in error["message"]

    monkeypatch.setenv("HF_TOKEN_DRAFT", "hf_secret\n")
    assert run({"draft": source(hub)}, volume) == 0
    printed = capfd.readouterr()
    assert "hf_secret" not in printed.out + printed.err


@pytest.mark.parametrize(
    ("changed", "reason", "message"),
    [
        ({"revision": "v9"}, "RevisionNotFound", "has no revision v9"),
        ({"repo": "acme/other"}, "SourceNotFound", "does not exist"),
        ({"repo": "a/b/c"}, "SourceNotFound", "a/b/c"),
    ],
)
def test_missing_repository_or_revision_is_reported(
    changed: dict[str, str], reason: str, message: str, hub: Hub, volume: Path
) -> None:
    assert run({"target": source(hub, **changed)}, volume) == result.PERMANENT
    error = read_result()["error"]
    assert error["reason"] == reason
    assert message in error["message"]


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_file_that_differs_from_the_listing_is_refused(name: str, hub: Hub, volume: Path) -> None:
    """Weights are checked by their SHA-256, other files by their object ID in git."""
    hub.stated[name] = hub.files[name]
    hub.files[name] = hub.files[name][:-1] + b" "
    assert run({"target": source(hub)}, volume) == result.TRANSIENT
    error = read_result()["error"]
    assert error["reason"] == "CheckpointCorrupt"
    assert f"{name} from acme/model at revision main" in error["message"]
    assert visible(volume) == []
    hub.files[name] = hub.stated[name]
    assert run({"target": source(hub)}, volume) == 0


def test_mirror_without_sizes_and_digests_is_supported(hub: Hub, volume: Path) -> None:
    hub.bare = True
    assert run({"target": source(hub)}, volume) == 0
    digest = read_result()["models"]["target"]["digest"]
    folder = volume / "checkpoints" / digest
    assert (folder / "model.safetensors").read_bytes() == hub.files["model.safetensors"]


def test_failed_connection_to_a_hub_is_a_transient_error(hub: Hub, volume: Path) -> None:
    unreachable = {"huggingFace": {"repo": "acme/model", "endpoint": "http://127.0.0.1:9"}}
    assert run({"target": unreachable}, volume) == result.TRANSIENT
    assert read_result()["error"]["reason"] == "NetworkError"


def test_repository_without_a_checkpoint_is_reported(volume: Path) -> None:
    with serving(Hub({"README.md": b"hello"})) as hub:
        assert run({"target": source(hub)}, volume) == result.PERMANENT
    assert read_result()["error"]["reason"] == "SourceNotFound"


def test_corrupt_download_is_fetched_again(volume: Path) -> None:
    cut = tensors(b"\1\2" * 99)[:-3]
    with serving(Hub(hub_files(**{"model.safetensors": cut}))) as hub:
        assert run({"target": source(hub)}, volume) == result.PERMANENT
        assert read_result()["error"]["reason"] == "CheckpointCorrupt"
        hub.files["model.safetensors"] = tensors(b"\1\2" * 99)
        assert run({"target": source(hub)}, volume) == 0
