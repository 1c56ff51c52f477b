"""Damaged files on the volume are named, and removed so that they are built or fetched again."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specdec.jobs import manifests, result, volume
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.payload.serving import check_volume
from unit.jobs.checkpoints import claim, run, visible, write
from unit.jobs.mounts import FILES, KEYS, Mounts, expectation

Told = Callable[[], dict[str, Any]]
HASH = "f" * 64


@pytest.fixture
def mounts(tmp_path: Path, volume: Path) -> Mounts:
    """Engines as their builds leave them, and the repository on them published."""
    mounts = Mounts(tmp_path, volume)
    for role in KEYS:
        described(engine(mounts, role))
    assert mounts.run() == 0
    return mounts


def engine(mounts: Mounts, role: str) -> Path:
    return mounts.volume / "engines" / KEYS[role]


def described(folder: Path) -> None:
    """The manifest that a build writes last."""
    files = manifests.describe([folder / "config.json", folder / "rank0.engine"])
    (folder / "manifest.json").write_text(json.dumps({"key": folder.name, "files": files}))


def start(mounts: Mounts) -> list[str]:
    """What a server's start finds damaged."""
    manifest = mounts.volume / "repositories" / f".manifest-{HASH}.json"
    return check_volume.damaged(manifest, {})


def later(path: Path) -> None:
    """Make a change one that happened after everything that there is."""
    now = path.stat().st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(now, now))


def flip(path: Path, *, hide: bool = False) -> None:
    """Change a byte, in a file of the same size; `hide` gives it back its time."""
    before = path.stat()
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    if hide:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    else:
        later(path)


def test_a_server_starts_on_what_was_published(mounts: Mounts) -> None:
    assert start(mounts) == []


def test_a_flipped_byte_in_an_engine_is_named_and_the_engine_removed(
    mounts: Mounts, told: Told
) -> None:
    flip(engine(mounts, "draft") / "rank0.engine")
    assert start(mounts) == ["the draft engine bbbbbbbbbbbbbbbb: rank0.engine has other content"]
    assert mounts.run() == result.PERMANENT
    assert told() == {
        "lost": ["draft"],
        "error": {
            "reason": "EngineDamaged",
            "message": "the draft engine bbbbbbbbbbbbbbbb is damaged (rank0.engine has other "
            "content) and will be built again",
        },
    }
    assert not engine(mounts, "draft").exists()
    assert engine(mounts, "target").exists()
    assert list((mounts.volume / "engines").glob(".*")) == []


@pytest.mark.parametrize("name", ["rank0.engine", "config.json"])
def test_a_truncated_engine_is_built_again(name: str, mounts: Mounts, told: Told) -> None:
    os.truncate(engine(mounts, "target") / name, 3)
    assert mounts.run() == result.PERMANENT
    assert told()["error"]["reason"] == "EngineDamaged"
    assert f"{name} has 3 bytes, not " in told()["error"]["message"]
    assert not engine(mounts, "target").exists()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"files": {"../x": {"bytes": 1, "sha256": ""}}}']
)
def test_an_engine_whose_manifest_cannot_be_read_is_built_again(
    text: str, mounts: Mounts, told: Told
) -> None:
    (engine(mounts, "target") / "manifest.json").write_text(text)
    assert mounts.run() == result.PERMANENT
    assert "damaged (manifest.json is not readable)" in told()["error"]["message"]
    assert not engine(mounts, "target").exists()


def test_every_lost_engine_is_named_at_once(mounts: Mounts, told: Told) -> None:
    os.truncate(engine(mounts, "target") / "rank0.engine", 3)
    (engine(mounts, "draft") / "manifest.json").unlink()
    assert mounts.run() == result.PERMANENT
    assert told()["lost"] == ["target", "draft"]
    assert told()["error"]["reason"] == "EngineDamaged"
    assert "the draft engine bbbbbbbbbbbbbbbb is not complete" in told()["error"]["message"]
    # A build takes a directory with a manifest for a complete engine.
    assert list((mounts.volume / "engines").iterdir()) == []


def test_damage_that_keeps_size_and_time_is_seen_when_content_is_read(
    mounts: Mounts, told: Told
) -> None:
    flip(engine(mounts, "draft") / "rank0.engine", hide=True)
    assert start(mounts) == []
    assert mounts.run() == 0
    assert mounts.run(content=True) == result.PERMANENT
    assert told()["lost"] == ["draft"]


def test_an_engine_with_other_times_is_read_and_kept(mounts: Mounts) -> None:
    for path in engine(mounts, "draft").iterdir():
        later(path)
    later(engine(mounts, "draft") / "rank0.engine")
    assert start(mounts) == [], "its content is as published"
    assert mounts.run() == 0
    assert mounts.run(content=True) == 0


def test_a_file_that_cannot_be_read_removes_nothing(
    mounts: Mounts, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path) -> str:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(check_volume, "sha256", broken)
    assert mounts.run(content=True) == result.TRANSIENT
    assert told()["error"]["reason"] == "PublishFailed"
    assert engine(mounts, "draft").exists()


@pytest.mark.parametrize("name", ["foreign", "tensorrt_llm/2", "ensemble/1/model.py"])
def test_what_is_foreign_in_a_repository_goes(name: str, mounts: Mounts) -> None:
    folder = mounts.volume / "repositories" / HASH
    # A directory without a file is a model to the server too.
    (folder / name).mkdir(parents=True)
    (found,) = start(mounts)
    assert found.startswith("the model repository ffffffffffffffff: ")
    assert found.endswith(" does not belong there")
    assert mounts.run() == 0
    assert not (folder / name).exists()
    assert start(mounts) == []


def test_a_missing_list_is_written_again(mounts: Mounts) -> None:
    (mounts.volume / "repositories" / f".manifest-{HASH}.json").unlink()
    assert len(start(mounts)) == 1
    assert mounts.run() == 0
    assert start(mounts) == []


def test_a_changed_file_of_a_repository_is_published_again(mounts: Mounts) -> None:
    flip(mounts.volume / "repositories" / HASH / "ensemble" / "config.pbtxt")
    assert len(start(mounts)) == 1
    assert mounts.run() == 0
    assert start(mounts) == []
    published = mounts.volume / "repositories" / HASH / "ensemble" / "config.pbtxt"
    assert published.read_text() == FILES["ensemble/config.pbtxt"]


@pytest.fixture
def fetched(mounts: Mounts, tmp_path: Path, told: Told) -> Path:
    """The target's checkpoint, which servers read the tokenizer of."""
    write(tmp_path / "sources" / "target" / "model")
    assert run({"target": claim()}, mounts.volume, tmp_path / "sources") == 0
    digest: str = told()["models"]["target"]["digest"]
    path = f"/models/checkpoints/{digest}"
    mounts.checkpoints = {"target": {"path": path, "served": True}}
    assert mounts.run() == 0
    assert start(mounts) == []
    return mounts.volume / "checkpoints" / digest


def again(mounts: Mounts, tmp_path: Path) -> int:
    return run({"target": claim()}, mounts.volume, tmp_path / "sources")


def test_a_truncated_tokenizer_is_named_and_fetched_again(
    fetched: Path, mounts: Mounts, tmp_path: Path, told: Told
) -> None:
    before = (fetched / "tokenizer.json").read_bytes()
    os.truncate(fetched / "tokenizer.json", 5)
    (found,) = start(mounts)
    assert found == (
        f"the checkpoint of the target: tokenizer.json has 5 bytes, not {len(before)}"
    )
    assert mounts.run() == result.PERMANENT
    error = told()["error"]
    assert error["reason"] == "CheckpointDamaged"
    assert "the checkpoint of the target is damaged (tokenizer.json has 5 " in error["message"]
    assert not fetched.exists()
    assert again(mounts, tmp_path) == 0
    assert (fetched / "tokenizer.json").read_bytes() == before
    assert mounts.run() == 0
    assert start(mounts) == []


def test_fetch_does_not_reuse_a_damaged_checkpoint(
    fetched: Path, mounts: Mounts, tmp_path: Path
) -> None:
    before = (fetched / "model.safetensors").read_bytes()
    flip(fetched / "model.safetensors")
    assert mounts.run() == 0, "servers do not read the weights"
    assert again(mounts, tmp_path) == 0
    assert (fetched / "model.safetensors").read_bytes() == before
    assert visible(mounts.volume) == [fetched.name]


def test_an_engine_is_not_built_again_from_damaged_weights(
    fetched: Path, mounts: Mounts, told: Told
) -> None:
    flip(fetched / "model.safetensors")
    os.truncate(engine(mounts, "target") / "rank0.engine", 3)
    assert mounts.run() == result.PERMANENT
    assert told()["error"]["reason"] == "CheckpointDamaged"
    assert not fetched.exists()
    assert not engine(mounts, "target").exists()


def test_a_checkpoint_of_an_earlier_release_is_read_once(
    fetched: Path, mounts: Mounts, told: Told
) -> None:
    listed = manifests.checkpoint_manifest(fetched)
    listed.unlink()
    assert mounts.run() == 0
    assert start(mounts) == []
    flip(fetched / "tokenizer.json")
    assert start(mounts) == ["the checkpoint of the target: tokenizer.json has other content"]
    flip(fetched / "tokenizer.json")
    assert mounts.run(content=True) == 0
    assert listed.exists()
    assert start(mounts) == []
    listed.unlink()
    flip(fetched / "tokenizer.json", hide=True)
    assert mounts.run(content=True) == result.PERMANENT
    assert "its files do not match its digest" in told()["error"]["message"]


def test_a_list_that_is_not_of_the_digest_does_not_count(fetched: Path, mounts: Mounts) -> None:
    """Whoever changes a file and its list cannot change the directory's name with them."""
    flip(fetched / "tokenizer.json")
    files = manifests.describe(volume.files(fetched, ArtifactKind.CHECKPOINT))
    manifests.write(manifests.checkpoint_manifest(fetched), {"files": files})
    assert mounts.run(content=True) == result.PERMANENT
    assert not fetched.exists()


def test_a_damaged_prebuilt_engine_is_fetched_again(mounts: Mounts, told: Told) -> None:
    built = engine(mounts, "target")
    (built / "manifest.json").unlink()
    digest = volume.digest(built, ArtifactKind.ENGINE)
    place = mounts.volume / "checkpoints" / digest
    place.parent.mkdir(exist_ok=True)
    built.rename(place)
    path = f"/models/checkpoints/{digest}"
    mounts.engines = [expectation("target", prebuilt=True, path=path)]
    assert mounts.run() == 0
    assert start(mounts) == []
    flip(place / "rank0.engine")
    assert len(start(mounts)) == 1
    assert mounts.run(content=True) == result.PERMANENT
    assert told()["error"]["reason"] == "EngineDamaged"
    assert told()["error"]["message"].endswith("will be fetched again")
    assert not place.exists()
