"""The result of a Job: its size limit, its error messages and the exit code."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.processes import DEADLINE_SECONDS
from specdec.api.reasons import FetchReason
from specdec.jobs import result
from specdec.jobs.result import JobError
from unit.jobs.termination import read_result


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (JobError(FetchReason.AUTH_FAILED, "no"), 2, "AuthFailed"),
        (JobError(FetchReason.NETWORK_ERROR, "no", permanent=False), 1, "NetworkError"),
        (OSError(28, "No space left on device"), 1, "VolumeFull"),
        (OSError(122, "Disk quota exceeded"), 1, "VolumeFull"),
        (OSError(30, "Read-only file system", "/models"), 1, "VolumeUnusable"),
        (OSError(5, "Input/output error", "/models/a"), 1, "VolumeUnusable"),
        (OSError(5, "Input/output error"), 1, "FetchFailed"),
        (RuntimeError("odd"), 1, "FetchFailed"),
    ],
)
def test_every_error_has_a_reason_and_a_message(error: Exception, code: int, reason: str) -> None:
    def work() -> Mapping[str, Any]:
        raise error

    assert result.run(work, FetchReason.FETCH_FAILED) == code
    reported = read_result()["error"]
    assert reported["reason"] == reason
    assert reported["message"]
    assert "Traceback" not in reported["message"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            OSError(5, "Input/output error", "/sources/target/model.safetensors"),
            "/sources/target/model.safetensors cannot be read or written (Input/output error): "
            "check the storage of that volume",
        ),
        (
            OSError(13, "Permission denied", "/models/checkpoints/ab/config.json"),
            "/models/checkpoints/ab/config.json cannot be read or written (Permission denied): "
            "give user and group 10001 access to it",
        ),
        (
            OSError(5, "Input/output error"),
            "a file or connection failed ([Errno 5] Input/output error): the Job's log shows "
            "where; check the volumes of its pod",
        ),
    ],
)
def test_error_of_the_system_has_file_cause_and_what_to_do(
    error: OSError, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason was that of any failure, and the message had no advice."""

    def work() -> Mapping[str, Any]:
        raise error

    assert result.run(work, FetchReason.FETCH_FAILED) == result.TRANSIENT
    assert read_result()["error"]["message"] == message
    assert ("in work" in capsys.readouterr().err) == (error.filename is None)


def test_result_is_only_printed_outside_a_pod(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPECDEC_TERMINATION_LOG", "/nowhere/log")
    assert result.run(lambda: {"ok": 1}, FetchReason.FETCH_FAILED) == 0
    assert json.loads(capsys.readouterr().out) == {"ok": 1}


@given(st.lists(st.text("0123456789abcdef", min_size=16, max_size=16), max_size=400))
def test_result_always_fits_the_limit(engines: list[str]) -> None:
    models = {"target": {"digest": "a" * 64, "facts": {"vocabSize": 1}}}
    value = {"models": models, "engines": engines}

    text = result.shorten(value)

    assert json.loads(text)["models"] == models
    assert len(text.encode()) <= result.LIMIT_BYTES


def test_long_error_is_truncated() -> None:
    text = result.shorten({"error": {"reason": "X", "message": "y" * 9000}})
    assert len(text) <= result.LIMIT_BYTES


def test_sigterm_runs_the_cleanup_of_the_work(tmp_path: Path) -> None:
    program = """
import contextlib, os, signal, sys
from pathlib import Path
from specdec.jobs import result

def work():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    finally:
        Path(sys.argv[1]).touch()

sys.exit(result.run(work, "X"))
"""
    released = tmp_path / "released"
    done = subprocess.run(
        [sys.executable, "-c", program, str(released)],
        check=False,
        timeout=DEADLINE_SECONDS,
        env={**os.environ, "SPECDEC_TERMINATION_LOG": str(tmp_path / "log")},
    )
    assert done.returncode == 128 + signal.SIGTERM
    assert released.exists()
