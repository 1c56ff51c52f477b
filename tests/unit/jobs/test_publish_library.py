"""The BLS library comes from the Job's image, and must match the operator's."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from specdec.jobs import result, volume
from specdec.triton import library
from unit.jobs.mounts import FILES, Mounts

Told = Callable[[], dict[str, Any]]
OURS, OTHER = "1" * 64, "2" * 64
FOLDERS = ("target/tensorrt_llm_bls", "draft/tensorrt_llm_bls")
WANTED = FILES | {f"{folder}/{library.SOURCE}": f"{OURS}\n" for folder in FOLDERS}


@pytest.fixture
def mounts(tmp_path: Path, volume: Path) -> Mounts:
    return Mounts(tmp_path, volume)


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package of the Job's image."""
    folder = tmp_path / "packaged"
    folder.mkdir()
    (folder / library.FILE).write_bytes(b"\x7fELF library")
    (folder / library.FILE).chmod(0o755)
    (folder / library.SOURCE).write_text(f"{OURS}\n")
    monkeypatch.setattr(library, "folder", lambda: folder)
    library.source.cache_clear()
    yield folder
    library.source.cache_clear()


def test_it_lies_beside_the_configuration_of_every_bls(
    mounts: Mounts, told: Told, packaged: Path
) -> None:
    assert mounts.run(WANTED) == 0
    assert told()["repository"]["files"] == len(WANTED) + len(FOLDERS)
    for folder in FOLDERS:
        place = mounts.volume / "repositories" / ("f" * 64) / folder
        assert (place / library.FILE).read_bytes() == b"\x7fELF library"
        assert (place / library.FILE).stat().st_mode & 0o777 == 0o644
        assert (place / library.SOURCE).read_text() == f"{OURS}\n"


def test_damaged_library_is_replaced_and_intact_library_is_kept(
    mounts: Mounts, packaged: Path
) -> None:
    assert mounts.run(WANTED) == 0
    final = mounts.volume / "repositories" / ("f" * 64)
    before = final.stat().st_ino
    assert mounts.run(WANTED) == 0
    assert final.stat().st_ino == before
    damaged = final / FOLDERS[0] / library.FILE
    damaged.write_bytes(b"\x7fELF")
    assert mounts.run(WANTED) == 0
    assert volume.sha256(damaged) == volume.sha256(packaged / library.FILE)


def test_library_with_another_digest_is_not_published(
    mounts: Mounts, told: Told, packaged: Path
) -> None:
    (packaged / library.SOURCE).write_text(f"{OTHER}\n")
    assert mounts.run(WANTED) == result.PERMANENT
    error = told()["error"]
    assert error["reason"] == "LibraryMismatch"
    assert OURS[:16] in error["message"]
    assert OTHER[:16] in error["message"]
    assert "give the operator and its Jobs the same image" in error["message"]
    assert mounts.published == []


def test_image_without_library_is_reported(mounts: Mounts, told: Told, packaged: Path) -> None:
    (packaged / library.SOURCE).unlink()
    assert mounts.run(WANTED) == result.PERMANENT
    error = told()["error"]
    assert error["reason"] == "LibraryMismatch"
    assert f"has no {library.FILE}" in error["message"]
    assert mounts.published == []


def test_library_that_changes_during_the_copy_is_not_published(
    mounts: Mounts, told: Told, packaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copyfile

    def cut(source: Path, target: Path) -> None:
        copy(source, target)
        if target.name == library.FILE:
            target.write_bytes(target.read_bytes()[:-1])

    monkeypatch.setattr("specdec.jobs.publish.shutil.copyfile", cut)
    assert mounts.run(WANTED) == result.TRANSIENT
    assert told()["error"]["reason"] == "PublishFailed"
    assert mounts.published == []


def test_a_repository_without_a_bls_needs_none(mounts: Mounts, packaged: Path) -> None:
    (packaged / library.SOURCE).unlink()
    assert mounts.run(FILES) == 0
