"""A server starts if its files are as published; else it waits for their repair."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.processes import DEADLINE_SECONDS, until
from specdec.images.serving import check_volume
from specdec.jobs import manifests, volume
from specdec.triton import start
from support.programs import local

REPOSITORY = {"bls/config.pbtxt": b"name: 'bls'", "bls/1/.keep": b""}
STARTED = "started with 7"


class Published:
    """A volume with an engine, a repository, and the published list of their files."""

    def __init__(self, root: Path) -> None:
        self.engine, self.repository = root / "engines" / "k", root / "repositories" / "f"
        self.manifest = root / "repositories" / ".manifest-f.json"
        for folder, files in (
            (self.engine, {"rank0.engine": b"weights"}),
            (self.repository, REPOSITORY),
        ):
            for name, content in files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
        self.publish()

    def publish(self) -> None:
        folders = [
            listed("the draft engine k", self.engine, ["rank0.engine"]),
            listed("the model repository f", self.repository, list(REPOSITORY), exact=True),
        ]
        manifests.write(self.manifest, {"folders": folders})

    def damaged(self) -> list[str]:
        return check_volume.damaged(self.manifest, {})


def listed(what: str, folder: Path, names: list[str], *, exact: bool = False) -> dict[str, Any]:
    files = manifests.stamped(folder, {name: volume.sha256(folder / name) for name in names})
    path = f"{folder.parent.name}/{folder.name}"
    return {"what": what, "path": path, "files": files, "exact": exact}


@pytest.fixture
def published(tmp_path: Path) -> Published:
    return Published(tmp_path)


def edit(path: Path, content: bytes) -> None:
    """Write a file and change its modification time, whatever the precision of the file system."""
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


def foreign(published: Published) -> None:
    (published.repository / "foreign" / "1").mkdir(parents=True)


def directory(published: Published) -> None:
    (published.engine / "rank0.engine").unlink()
    (published.engine / "rank0.engine").mkdir()


def link(published: Published) -> None:
    (published.repository / "bls" / "2").symlink_to(published.repository / "bls" / "1")


DAMAGE: dict[str, tuple[Callable[[Published], object], str]] = {
    "a flipped byte": (
        lambda p: edit(p.engine / "rank0.engine", b"weightS"),
        "the draft engine k: rank0.engine has other content",
    ),
    "a truncated engine": (
        lambda p: os.truncate(p.engine / "rank0.engine", 3),
        "the draft engine k: rank0.engine has 3 bytes, not 7",
    ),
    "a missing file": (
        lambda p: (p.repository / "bls" / "config.pbtxt").unlink(),
        "the model repository f: bls/config.pbtxt is missing",
    ),
    "a directory in place of a file": (
        directory,
        "the draft engine k: rank0.engine is not a file",
    ),
    "a foreign model": (foreign, "the model repository f: foreign does not belong there"),
    "a foreign version": (link, "the model repository f: bls/2 does not belong there"),
    "no list": (
        lambda p: p.manifest.unlink(),
        "the list of the repository's files, which is missing (.manifest-f.json)",
    ),
    "half a list": (
        lambda p: os.truncate(p.manifest, 20),
        "the list of the repository's files, which is not readable (JSONDecodeError)",
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_named_by_folder_and_file(what: str, published: Published) -> None:
    assert published.damaged() == []
    damage, sentence = DAMAGE[what]
    damage(published)
    assert published.damaged() == [sentence]


def test_a_file_is_read_only_when_its_time_differs(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    digest = check_volume.sha256

    def noting(path: Path) -> str:
        read.append(path)
        return digest(path)

    monkeypatch.setattr(check_volume, "sha256", noting)
    known: check_volume.Digests = {}
    assert check_volume.damaged(published.manifest, known) == []
    assert read == []
    # A restored backup or other storage can change modification times: only the content counts.
    edit(published.engine / "rank0.engine", b"weights")
    for _ in range(3):
        assert check_volume.damaged(published.manifest, known) == []
    assert read == [published.engine / "rank0.engine"]


def test_other_files_beside_an_engine_are_no_damage(published: Published) -> None:
    (published.engine / ".nfs000001").touch()
    assert published.damaged() == []


def test_a_file_that_cannot_be_read_is_named(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path) -> str:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(check_volume, "sha256", broken)
    edit(published.engine / "rank0.engine", b"weights")
    assert published.damaged() == [
        "the draft engine k: rank0.engine cannot be read (Input/output error)"
    ]


@pytest.mark.parametrize("text", ["[]", "7", "{}", '{"folders": [7]}', '{"folders": 1}'])
def test_any_other_json_is_no_list(text: str, published: Published) -> None:
    published.manifest.write_text(text)
    (sentence,) = published.damaged()
    assert sentence.startswith("the list of the repository's files, which is not readable")


@contextmanager
def server(published: Published, seconds: int = 60) -> Iterator[subprocess.Popen[str]]:
    """Start the container's process with a fake server that prints its argument."""
    own = [sys.executable, "-c", "import sys; print('started with', sys.argv[1])", "7"]
    argv = local(start.checked(own, str(published.manifest), seconds))
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def report(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    damaged: list[str] = json.loads(process.stdout.readline())["volume"]["damaged"]
    return damaged


def test_a_server_starts_at_once_when_all_is_as_published(published: Published) -> None:
    with server(published) as process:
        out, error = process.communicate(timeout=DEADLINE_SECONDS)
    assert (out.splitlines(), error) == ([STARTED], "")


@pytest.mark.slow
def test_a_server_waits_for_the_repair_and_then_starts(published: Published) -> None:
    os.truncate(published.engine / "rank0.engine", 3)
    with server(published) as process:
        assert report(process) == ["the draft engine k: rank0.engine has 3 bytes, not 7"]
        foreign(published)
        assert len(report(process)) == 2, "what comes later is reported too"
        # The engine is rebuilt with other bytes, and the new list contains their digest.
        (published.engine / "rank0.engine").write_bytes(b"others!")
        (published.repository / "foreign" / "1").rmdir()
        (published.repository / "foreign").rmdir()
        published.publish()
        out, _ = process.communicate(timeout=DEADLINE_SECONDS)
    assert out.splitlines()[-1] == STARTED


def test_a_server_has_the_signals_of_a_fresh_process(published: Published) -> None:
    """Python ignores SIGPIPE, and a program that replaces the process would inherit this."""
    own = ["grep", "SigIgn", "/proc/self/status"]
    argv = local(start.checked(own, str(published.manifest), 9))
    out = subprocess.run(
        argv, check=True, capture_output=True, text=True, timeout=DEADLINE_SECONDS
    ).stdout
    assert int(out.split()[1], 16) & (1 << (signal.SIGPIPE - 1)) == 0


def test_a_server_that_is_not_repaired_ends_with_a_sentence(published: Published) -> None:
    os.truncate(published.engine / "rank0.engine", 3)
    with server(published, seconds=0) as process:
        _, error = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 1
    assert error == (
        "the draft engine k: rank0.engine has 3 bytes, not 7: not repaired within 0 seconds\n"
    )


def test_a_pod_that_is_deleted_does_not_wait(published: Published) -> None:
    os.truncate(published.engine / "rank0.engine", 3)
    with server(published) as process:
        report(process)
        process.send_signal(signal.SIGTERM)
        until(lambda: process.poll() is not None, lambda: "it goes on after SIGTERM")
    assert process.returncode == 143
