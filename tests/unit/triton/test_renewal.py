"""The sidecar that watches certificate files reports each change."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cluster.processes import DEADLINE_SECONDS
from specdec.images.serving import renewal


class Mount:
    """A folder of files as the kubelet mounts it: one link changes all files at once."""

    def __init__(self, folder: Path, **files: str) -> None:
        self._folder, self._number = folder, 0
        folder.mkdir()
        self.change(**files)
        for name in files:
            (folder / name).symlink_to(Path("..data", name))
        self.files = [folder / name for name in files]

    def change(self, **files: str) -> None:
        self._number += 1
        there, fresh = self._folder / f"..{self._number}", self._folder / "..data_tmp"
        there.mkdir()
        for name, text in files.items():
            (there / name).write_text(text)
        fresh.symlink_to(there.name)
        fresh.rename(self._folder / "..data")


@pytest.fixture
def mount(tmp_path: Path) -> Mount:
    return Mount(tmp_path / "mount", crt="first", ca="authority")


def reported(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return the reports that were printed since the last call."""
    return [json.loads(line)["certificate"] for line in capsys.readouterr().out.splitlines()]


def test_a_change_is_reported_once(
    mount: Mount, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = tmp_path / "memory"
    last = renewal.check(memory, mount.files, "")
    (first,) = reported(capsys)
    assert first["started"] == first["now"] == last
    assert renewal.check(memory, mount.files, last) == last
    assert reported(capsys) == []

    mount.change(crt="second", ca="authority")
    last = renewal.check(memory, mount.files, last)
    (second,) = reported(capsys)
    assert second["started"] == first["now"] != second["now"] == last
    assert second["at"] >= first["at"]

    # The container restarts while the server keeps running: it reports the same change.
    renewal.check(memory, mount.files, "")
    (again,) = reported(capsys)
    assert (again["started"], again["now"]) == (first["now"], second["now"])


def test_every_file_counts_and_where_one_ends_too(mount: Mount) -> None:
    marks = {renewal.mark(mount.files)}
    for crt, ca in (("firsta", "uthority"), ("first", "another"), ("authority", "first")):
        mount.change(crt=crt, ca=ca)
        marks.add(renewal.mark(mount.files))
    assert len(marks) == 4


def test_a_missing_file_is_no_renewal(
    mount: Mount, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = tmp_path / "memory"
    mount.change(ca="authority")
    assert renewal.check(memory, mount.files, "") == ""
    assert not memory.exists(), "the server waits for it too"
    mount.change(crt="first", ca="authority")
    last = renewal.check(memory, mount.files, "")
    mount.change(ca="authority")
    assert renewal.check(memory, mount.files, last) == last
    assert len(reported(capsys)) == 1


def test_the_process_ends_on_sigterm(mount: Mount, tmp_path: Path) -> None:
    argv = [sys.executable, renewal.__file__, str(tmp_path / "memory"), *map(str, mount.files)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=DEADLINE_SECONDS) == 0
    assert line["certificate"]["now"] == renewal.mark(mount.files)
