"""The prune Job: which directories it lists, deletes and keeps."""

import json
import os
import time
from pathlib import Path

import pytest

from specdec.jobs import prune
from specdec.jobs.prune import KINDS

OLD = time.time() - 7 * 86400


def folder(root: Path, kind: str, name: str, *, age: float = OLD) -> Path:
    """Create a directory with a file of 5 bytes."""
    made = root / kind / name
    made.mkdir(parents=True)
    (made / "file").write_text("12345")
    os.utime(made, (age, age))
    return made


def manifest(root: Path, repository: str, *paths: str) -> Path:
    file = root / "repositories" / f".manifest-{repository}.json"
    file.write_text(json.dumps({"folders": [{"path": path} for path in paths]}))
    return file


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """Create repositories `r1` (uses `e1`, `c1`) and `r0` (uses `e0`, `c1`), and unused `c0`."""
    for kind, name in (
        *(("checkpoints", name) for name in ("c0", "c1")),
        *(("engines", name) for name in ("e0", "e1")),
        *(("repositories", name) for name in ("r0", "r1")),
    ):
        folder(tmp_path, kind, name)
    (tmp_path / "checkpoints" / ".manifest-c0.json").write_text("{}")
    manifest(tmp_path, "r0", "repositories/r0", "engines/e0", "checkpoints/c1")
    manifest(tmp_path, "r1", "repositories/r1", "engines/e1", "checkpoints/c1")
    return tmp_path


def tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def unused(volume: Path, older_than: float | None = None, **keep: list[str]) -> set[str]:
    items = prune.prune(volume, keep, older_than)
    return {f"{item.kind}/{item.name}" for item in items if not item.used}


def test_repository_keeps_what_its_manifest_lists(volume: Path) -> None:
    before = tree(volume)
    assert unused(volume, repositories=["r1"]) == {
        "checkpoints/c0",
        "engines/e0",
        "repositories/r0",
    }
    assert unused(volume, repositories=["r0", "r1"]) == {"checkpoints/c0"}
    assert tree(volume) == before, "listing must not change the volume"


def test_names_of_a_status_are_kept_before_anything_is_published(volume: Path) -> None:
    assert unused(volume, checkpoints=["c0"], engines=["e0"], repositories=["r2", "r1"]) == {
        "repositories/r0"
    }


def test_unused_directories_are_deleted_with_their_manifests(volume: Path) -> None:
    expected = {path for path in tree(volume) if not {"c0", "e0", "r0"} & set(path.split("/"))}
    expected -= {"checkpoints/.manifest-c0.json", "repositories/.manifest-r0.json"}
    unused(volume, 86400.0, repositories=["r1"])
    assert tree(volume) == expected


def test_new_directories_and_unfinished_work_stay(volume: Path) -> None:
    folder(volume, "engines", "e2", age=time.time() - 60)
    folder(volume, "engines", ".e3.work")
    (volume / "engines" / ".lock-e3").touch()
    assert "engines/e2" in unused(volume, 3600.0, repositories=["r1"])
    assert {"engines/e2", "engines/.e3.work", "engines/.lock-e3"} <= tree(volume)


def test_abandoned_downloads_and_builds_are_listed_and_deleted(volume: Path) -> None:
    """The source or the engine of an earlier spec: no later Job would resume them."""
    abandoned = [
        folder(volume, "checkpoints", ".download-c3"),
        folder(volume, "engines", ".e3.a1.work"),
    ]
    for path in abandoned:
        os.utime(path / "file", (OLD, OLD))
    keep = {"repositories": ["r1"]}
    assert {"checkpoints/.download-c3", "engines/.e3.a1.work"} <= unused(volume, None, **keep)
    list(prune.prune(volume, keep, 0.0, {}))
    assert all(path.is_dir() for path in abandoned), "the operator deletes only what it names"
    unused(volume, 30 * 86400.0, **keep)
    assert all(path.is_dir() for path in abandoned)
    unused(volume, 3600.0, **keep)
    assert not any(path.exists() for path in abandoned)


@pytest.mark.parametrize("text", ["", "{}", '{"folders": [{}]}', '{"folders": [{"path": 3}]}'])
def test_nothing_is_deleted_if_a_used_manifest_cannot_be_read(
    volume: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (volume / "repositories" / ".manifest-r1.json").write_text(text)
    before = tree(volume)
    keep = json.dumps({"repositories": ["r1"]})
    arguments = ["--keep", keep, "--older-than", "0", "--delete", "--volume", str(volume)]
    assert prune.main(arguments) == 2
    assert tree(volume) == before
    error = json.loads(capsys.readouterr().out.splitlines()[-1])["error"]
    assert error["reason"] == "VolumeUnusable"
    assert "nothing was deleted" in error["message"]


def test_log_has_a_line_for_each_directory(
    volume: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep = json.dumps({"repositories": ["r1"]})
    assert prune.main(["--keep", keep, "--older-than", "0", "--volume", str(volume)]) == 0
    lines = capsys.readouterr().out.splitlines()
    items = [json.loads(line)["item"] for line in lines if line.startswith('{"item"')]
    assert [(item["kind"], item["name"]) for item in items] == [
        (kind, name + digit) for kind, name in zip(KINDS, "cer", strict=True) for digit in "01"
    ]
    assert {item["bytes"] for item in items} == {5}
    assert not any(item["deleted"] for item in items)


def test_empty_volume_has_nothing_to_list(tmp_path: Path) -> None:
    assert list(prune.prune(tmp_path, {}, 0.0)) == []


def test_only_the_given_names_are_deleted_and_never_what_is_kept(volume: Path) -> None:
    only = {"engines": ["e0", "e1", "e9"], "checkpoints": ["c1"]}
    keep = {"repositories": ["r1"]}
    items = list(prune.prune(volume, keep, 0.0, only))
    assert {f"{item.kind}/{item.name}" for item in items if item.deleted} == {"engines/e0"}
    assert (volume / "checkpoints" / "c0").is_dir(), "a name that is not given stays"


def test_remains_of_a_cancelled_job_are_deleted(volume: Path) -> None:
    aside = folder(volume, "engines", ".e5.damaged")
    list(prune.prune(volume, {"repositories": ["r1"]}))
    assert aside.is_dir(), "listing must not change the volume"
    list(prune.prune(volume, {"repositories": ["r1"]}, 0.0, {}))
    assert not aside.exists()
    assert (volume / "engines" / "e0").is_dir()
