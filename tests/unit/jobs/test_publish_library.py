"""The BLS library comes from the Job's image and must match the operator's."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from specdec.jobs import result, volume
from specdec.triton import library
from unit.jobs.mounts import FILES, Mounts
from unit.jobs.termination import read_result

OURS, OTHER = "1" * 64, "2" * 64
FOLDERS = ("target/tensorrt_llm_bls", "draft/tensorrt_llm_bls")
FILES_WITH_BLS = FILES | {f"{folder}/{library.SOURCE}": f"{OURS}\n" for folder in FOLDERS}


@pytest.fixture
def mounts(tmp_path: Path, volume: Path) -> Mounts:
    return Mounts(tmp_path, volume)


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the folder that replaces the library's package in the Job's image."""
    folder = tmp_path / "packaged"
    folder.mkdir()
    (folder / library.FILE).write_bytes(b"\x7fELF library")
    (folder / library.FILE).chmod(0o755)
    (folder / library.SOURCE).write_text(f"{OURS}\n")
    monkeypatch.setattr(library, "folder", lambda: folder)
    library.source_digest.cache_clear()
    yield folder
    library.source_digest.cache_clear()


def test_library_is_published_beside_every_bls_configuration(
    mounts: Mounts, packaged: Path
) -> None:
    assert mounts.run(FILES_WITH_BLS) == 0
    assert read_result()["repository"]["files"] == len(FILES_WITH_BLS) + len(FOLDERS)
    for folder in FOLDERS:
        published = mounts.volume / "repositories" / ("f" * 64) / folder
        assert (published / library.FILE).read_bytes() == b"\x7fELF library"
        assert (published / library.FILE).stat().st_mode & 0o777 == 0o644
        assert (published / library.SOURCE).read_text() == f"{OURS}\n"


def test_damaged_library_is_replaced_and_intact_library_is_kept(
    mounts: Mounts, packaged: Path
) -> None:
    assert mounts.run(FILES_WITH_BLS) == 0
    final = mounts.volume / "repositories" / ("f" * 64)
    before = final.stat().st_ino
    assert mounts.run(FILES_WITH_BLS) == 0
    assert final.stat().st_ino == before
    damaged = final / FOLDERS[0] / library.FILE
    damaged.write_bytes(b"\x7fELF")
    assert mounts.run(FILES_WITH_BLS) == 0
    assert volume.sha256(damaged) == volume.sha256(packaged / library.FILE)


def test_library_with_another_digest_is_not_published(mounts: Mounts, packaged: Path) -> None:
    (packaged / library.SOURCE).write_text(f"{OTHER}\n")
    assert mounts.run(FILES_WITH_BLS) == result.PERMANENT
    error = read_result()["error"]
    assert error["reason"] == "LibraryMismatch"
    assert OURS[:16] in error["message"]
    assert OTHER[:16] in error["message"]
    assert "give the operator and its Jobs the same image" in error["message"]
    assert mounts.published == []


def test_image_without_library_is_reported(mounts: Mounts, packaged: Path) -> None:
    (packaged / library.FILE).unlink()
    assert mounts.run(FILES_WITH_BLS) == result.PERMANENT
    error = read_result()["error"]
    assert error["reason"] == "LibraryMismatch"
    assert f"has no {library.FILE}" in error["message"]
    assert mounts.published == []


def test_library_that_changes_during_the_copy_is_not_published(
    mounts: Mounts, packaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copyfile

    def cut(source: Path, target: Path) -> None:
        copy(source, target)
        if target.name == library.FILE:
            target.write_bytes(target.read_bytes()[:-1])

    monkeypatch.setattr("specdec.jobs.publish.shutil.copyfile", cut)
    assert mounts.run(FILES_WITH_BLS) == result.TRANSIENT
    assert read_result()["error"]["reason"] == "PublishFailed"
    assert mounts.published == []


def test_repository_without_a_bls_needs_no_library(mounts: Mounts, packaged: Path) -> None:
    (packaged / library.SOURCE).unlink()
    assert mounts.run(FILES) == 0
