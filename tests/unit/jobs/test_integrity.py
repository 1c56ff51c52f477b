"""Jobs report damaged files on the volume and remove them, so that they are made again."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from specdec.images.serving import check_volume
from specdec.jobs import checkpoint_config, manifests, result, volume
from specdec.jobs.artifact_kind import ArtifactKind
from unit.jobs.checkpoints import claim, run, visible, write
from unit.jobs.mounts import FILES, KEYS, Mounts, expectation
from unit.jobs.termination import read_result

HASH = "f" * 64


@pytest.fixture
def mounts(tmp_path: Path, volume: Path) -> Mounts:
    """Return engines as their builds leave them, and a published repository that uses them."""
    mounts = Mounts(tmp_path, volume)
    for role in KEYS:
        write_manifest(engine(mounts, role))
    assert mounts.run() == 0
    return mounts


def engine(mounts: Mounts, role: str) -> Path:
    return mounts.volume / "engines" / KEYS[role]


def write_manifest(folder: Path) -> None:
    """Write the manifest that a build writes last."""
    files = manifests.describe([folder / "config.json", folder / "rank0.engine"])
    (folder / "manifest.json").write_text(json.dumps({"key": folder.name, "files": files}))


def damage_at_start(mounts: Mounts) -> list[str]:
    """Return the damage that a server reports when it starts."""
    manifest = mounts.volume / "repositories" / f".manifest-{HASH}.json"
    return check_volume.damaged(manifest, {})


def later(path: Path) -> None:
    """Set the modification time of a file one second later."""
    now = path.stat().st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(now, now))


def flip(path: Path, *, hide: bool = False) -> None:
    """Change a byte of a file and keep its size; `hide` keeps its modification time too."""
    before = path.stat()
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    if hide:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    else:
        later(path)


def test_published_files_have_no_damage(mounts: Mounts) -> None:
    assert damage_at_start(mounts) == []


def test_engine_with_a_changed_byte_is_reported_and_removed(mounts: Mounts) -> None:
    flip(engine(mounts, "draft") / "rank0.engine")
    assert damage_at_start(mounts) == [
        "the draft engine bbbbbbbbbbbbbbbb: rank0.engine has other content"
    ]
    assert mounts.run() == result.PERMANENT
    assert read_result() == {
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
def test_truncated_engine_is_built_again(name: str, mounts: Mounts) -> None:
    os.truncate(engine(mounts, "target") / name, 3)
    assert mounts.run() == result.PERMANENT
    assert read_result()["error"]["reason"] == "EngineDamaged"
    assert f"{name} has 3 bytes, not " in read_result()["error"]["message"]
    assert not engine(mounts, "target").exists()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"files": {"../x": {"bytes": 1, "sha256": ""}}}']
)
def test_engine_with_an_unreadable_manifest_is_built_again(text: str, mounts: Mounts) -> None:
    (engine(mounts, "target") / "manifest.json").write_text(text)
    assert mounts.run() == result.PERMANENT
    assert "damaged (manifest.json is not readable)" in read_result()["error"]["message"]
    assert not engine(mounts, "target").exists()


def test_all_damaged_engines_are_reported_together(mounts: Mounts) -> None:
    os.truncate(engine(mounts, "target") / "rank0.engine", 3)
    (engine(mounts, "draft") / "manifest.json").unlink()
    assert mounts.run() == result.PERMANENT
    assert read_result()["lost"] == ["target", "draft"]
    assert read_result()["error"]["reason"] == "EngineDamaged"
    assert "the draft engine bbbbbbbbbbbbbbbb is not complete" in read_result()["error"]["message"]
    # Both are removed, because a build treats a directory with a manifest as complete.
    assert list((mounts.volume / "engines").iterdir()) == []


def test_damage_that_keeps_size_and_time_is_detected_by_content(mounts: Mounts) -> None:
    flip(engine(mounts, "draft") / "rank0.engine", hide=True)
    assert damage_at_start(mounts) == []
    assert mounts.run() == 0
    assert mounts.run(content=True) == result.PERMANENT
    assert read_result()["lost"] == ["draft"]


def test_engine_with_other_modification_times_is_kept(mounts: Mounts) -> None:
    for path in engine(mounts, "draft").iterdir():
        later(path)
    later(engine(mounts, "draft") / "rank0.engine")
    assert damage_at_start(mounts) == [], "its content is as published"
    assert mounts.run() == 0
    assert mounts.run(content=True) == 0


def test_unreadable_file_removes_nothing(mounts: Mounts, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Path) -> str:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(check_volume, "sha256", broken)
    assert mounts.run(content=True) == result.TRANSIENT
    error = read_result()["error"]
    assert error["reason"] == "EngineUnreadable"
    assert "the target engine aaaaaaaaaaaaaaaa cannot be read ([Errno 5]" in error["message"]
    assert f"delete engines/{KEYS['target']} on the volume" in error["message"]
    assert engine(mounts, "target").exists()
    assert engine(mounts, "draft").exists()


def checkpoint(mounts: Mounts) -> Path:
    """Return a checkpoint whose tokenizer the servers read, with its manifest."""
    scratch = mounts.volume / "checkpoints" / "scratch"
    scratch.mkdir(parents=True)
    (scratch / "tokenizer.json").write_text("{}")
    files = manifests.describe([scratch / "tokenizer.json"])
    folder = scratch.rename(scratch.with_name(manifests.digest(files)))
    manifests.write(manifests.checkpoint_manifest(folder), {"files": files})
    path = f"/models/checkpoints/{folder.name}"
    mounts.checkpoints = {"target": {"path": path, "served": True}}
    return folder


def test_unreadable_checkpoint_is_reported_with_what_to_do(
    mounts: Mounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason was PublishFailed, and the message only the error of the system."""
    folder = checkpoint(mounts)
    assert mounts.run() == 0

    def broken(path: Path) -> str:
        if path.name == "tokenizer.json":
            raise OSError(5, "Input/output error", str(path))
        return volume.sha256(path)

    monkeypatch.setattr(check_volume, "sha256", broken)
    assert mounts.run(content=True) == result.TRANSIENT
    error = read_result()["error"]
    assert error["reason"] == "CheckpointUnreadable"
    assert error["message"] == (
        f"the checkpoint of the target cannot be read ([Errno 5] Input/output error: "
        f"'{folder / 'tokenizer.json'}'): check the volume; if the file stays unreadable, delete "
        f"checkpoints/{folder.name} on the volume, so that the checkpoint is fetched again"
    )
    assert folder.exists()


# The kernel opens this file, and its read fails: the error then has no file name.
UNREADABLE = Path("/proc/self/mem")


@pytest.mark.parametrize("read", [check_volume.sha256, volume.sha256, checkpoint_config.content])
def test_error_while_reading_names_the_file(read: Callable[[Path], object]) -> None:
    with pytest.raises(OSError, match="Input/output error: '/proc/self/mem'"):
        read(UNREADABLE)


def test_error_while_copying_names_the_file(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for folder in (source, target):
        folder.mkdir()
    (source / "model.safetensors").symlink_to(UNREADABLE)
    with pytest.raises(OSError, match=r"Input/output error: '.*/source/model.safetensors'"):
        list(volume.copy(source, target, ArtifactKind.CHECKPOINT))


@pytest.mark.parametrize("name", ["foreign", "tensorrt_llm/2", "ensemble/1/model.py"])
def test_foreign_path_in_a_repository_is_removed(name: str, mounts: Mounts) -> None:
    folder = mounts.volume / "repositories" / HASH
    # Triton treats even an empty directory as a model.
    (folder / name).mkdir(parents=True)
    (damage,) = damage_at_start(mounts)
    assert damage.startswith("the model repository ffffffffffffffff: ")
    assert damage.endswith(" does not belong there")
    assert mounts.run() == 0
    assert not (folder / name).exists()
    assert damage_at_start(mounts) == []


def test_missing_manifest_of_a_repository_is_written_again(mounts: Mounts) -> None:
    (mounts.volume / "repositories" / f".manifest-{HASH}.json").unlink()
    assert len(damage_at_start(mounts)) == 1
    assert mounts.run() == 0
    assert damage_at_start(mounts) == []


def test_changed_file_of_a_repository_is_published_again(mounts: Mounts) -> None:
    flip(mounts.volume / "repositories" / HASH / "ensemble" / "config.pbtxt")
    assert len(damage_at_start(mounts)) == 1
    assert mounts.run() == 0
    assert damage_at_start(mounts) == []
    published = mounts.volume / "repositories" / HASH / "ensemble" / "config.pbtxt"
    assert published.read_text() == FILES["ensemble/config.pbtxt"]


@pytest.fixture
def fetched(mounts: Mounts, tmp_path: Path) -> Path:
    """Return the fetched checkpoint of the target, whose tokenizer the server reads."""
    write(tmp_path / "sources" / "target" / "model")
    assert run({"target": claim()}, mounts.volume, tmp_path / "sources") == 0
    digest: str = read_result()["models"]["target"]["digest"]
    path = f"/models/checkpoints/{digest}"
    mounts.checkpoints = {"target": {"path": path, "served": True}}
    assert mounts.run() == 0
    assert damage_at_start(mounts) == []
    return mounts.volume / "checkpoints" / digest


def fetch_again(mounts: Mounts, tmp_path: Path) -> int:
    return run({"target": claim()}, mounts.volume, tmp_path / "sources")


def test_truncated_tokenizer_is_reported_and_fetched_again(
    fetched: Path, mounts: Mounts, tmp_path: Path
) -> None:
    before = (fetched / "tokenizer.json").read_bytes()
    os.truncate(fetched / "tokenizer.json", 5)
    (damage,) = damage_at_start(mounts)
    assert damage == (
        f"the checkpoint of the target: tokenizer.json has 5 bytes, not {len(before)}"
    )
    assert mounts.run() == result.PERMANENT
    error = read_result()["error"]
    assert error["reason"] == "CheckpointDamaged"
    assert "the checkpoint of the target is damaged (tokenizer.json has 5 " in error["message"]
    assert not fetched.exists()
    assert fetch_again(mounts, tmp_path) == 0
    assert (fetched / "tokenizer.json").read_bytes() == before
    assert mounts.run() == 0
    assert damage_at_start(mounts) == []


def test_fetch_does_not_reuse_a_damaged_checkpoint(
    fetched: Path, mounts: Mounts, tmp_path: Path
) -> None:
    before = (fetched / "model.safetensors").read_bytes()
    flip(fetched / "model.safetensors")
    assert mounts.run() == 0, "servers do not read the weights"
    assert fetch_again(mounts, tmp_path) == 0
    assert (fetched / "model.safetensors").read_bytes() == before
    assert visible(mounts.volume) == [fetched.name]


def test_engine_is_not_built_again_from_damaged_weights(fetched: Path, mounts: Mounts) -> None:
    flip(fetched / "model.safetensors")
    os.truncate(engine(mounts, "target") / "rank0.engine", 3)
    assert mounts.run() == result.PERMANENT
    assert read_result()["error"]["reason"] == "CheckpointDamaged"
    assert not fetched.exists()
    assert not engine(mounts, "target").exists()


def test_checkpoint_of_an_earlier_release_gets_a_manifest(fetched: Path, mounts: Mounts) -> None:
    manifest = manifests.checkpoint_manifest(fetched)
    manifest.unlink()
    assert mounts.run() == 0
    assert damage_at_start(mounts) == []
    flip(fetched / "tokenizer.json")
    assert damage_at_start(mounts) == [
        "the checkpoint of the target: tokenizer.json has other content"
    ]
    flip(fetched / "tokenizer.json")
    assert mounts.run(content=True) == 0
    assert manifest.exists()
    assert damage_at_start(mounts) == []
    manifest.unlink()
    flip(fetched / "tokenizer.json", hide=True)
    assert mounts.run(content=True) == result.PERMANENT
    assert "its files do not match its digest" in read_result()["error"]["message"]


def test_changed_manifest_does_not_hide_a_changed_file(fetched: Path, mounts: Mounts) -> None:
    """The digest in the name of the directory stays the same if the manifest is changed."""
    flip(fetched / "tokenizer.json")
    files = manifests.describe(volume.files(fetched, ArtifactKind.CHECKPOINT))
    manifests.write(manifests.checkpoint_manifest(fetched), {"files": files})
    assert mounts.run(content=True) == result.PERMANENT
    assert not fetched.exists()


def test_damaged_prebuilt_engine_is_fetched_again(mounts: Mounts) -> None:
    built = engine(mounts, "target")
    (built / "manifest.json").unlink()
    digest = volume.digest(built, ArtifactKind.ENGINE)
    prebuilt = mounts.volume / "checkpoints" / digest
    prebuilt.parent.mkdir(exist_ok=True)
    built.rename(prebuilt)
    path = f"/models/checkpoints/{digest}"
    mounts.engines = [expectation("target", prebuilt=True, path=path)]
    assert mounts.run() == 0
    assert damage_at_start(mounts) == []
    flip(prebuilt / "rank0.engine")
    assert len(damage_at_start(mounts)) == 1
    assert mounts.run(content=True) == result.PERMANENT
    assert read_result()["error"]["reason"] == "EngineDamaged"
    assert read_result()["error"]["message"].endswith("will be fetched again")
    assert not prebuilt.exists()
