"""A TensorRT build that is killed in any step keeps its complete steps and repeats that step."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from cluster.processes import DEADLINE_SECONDS
from unit.build.image import BUILD, Image
from unit.build.test_tensorrt_build import planned

PROGRAMS = ["quantize", "convert-redrafter-1", "trtllm-build"]
FP8 = {"method": "FP8", "kvCache": "FP8"}


def three_steps(image: Image) -> dict[str, Any]:
    return planned(image, "explicit_draft_tokens", quantization=FP8, tensorParallel=2)


@contextmanager
def stopped_at(image: Image, program: str, plan: dict[str, Any]) -> Iterator[tuple[Any, int]]:
    """Start a build that stops inside a program; yield its process and the program's id."""
    gate = image.root / "gate"
    gate.unlink(missing_ok=True)
    os.mkfifo(gate)
    image.scene = {program: {"stop": str(gate)}}
    process = image.start(plan)
    pid = int(gate.read_text(encoding="utf-8"))  # returns when the program has written its id
    image.scene = {}
    try:
        yield process, pid
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE_SECONDS)
        with suppress(ProcessLookupError):  # the end of a pod would also end the program
            os.kill(pid, signal.SIGKILL)


def uninterrupted(tmp_path: Path, make: Any) -> dict[str, bytes]:
    image = Image(tmp_path / "whole", "1.2.1")
    assert "engine" in image.build(make(image))[0]
    return image.made()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_killed_build_goes_on_after_its_last_finished_step(
    program: str, number: signal.Signals, tmp_path: Path
) -> None:
    image = Image(tmp_path, "1.2.1")
    plan = three_steps(image)
    with stopped_at(image, program, plan) as (process, pid):
        process.send_signal(number)
        process.wait(DEADLINE_SECONDS)
        assert not image.output.exists()
        if number == signal.SIGTERM:
            assert process.returncode == 1
            with pytest.raises(ProcessLookupError):  # the build has ended its program
                os.kill(pid, 0)
            message = json.loads((tmp_path / "termination.json").read_text(encoding="utf-8"))
            assert message["error"]["reason"] == "Cancelled"
    before = image.programs()
    assert before == PROGRAMS[: PROGRAMS.index(program) + 1]
    message, _ = image.build(plan)
    assert message["engine"]["key"] == "k1"
    assert image.programs()[len(before) :] == PROGRAMS[PROGRAMS.index(program) :]
    assert image.left() == ["k1"]
    assert image.made() == uninterrupted(tmp_path, three_steps)


def test_a_damaged_step_is_run_again(tmp_path: Path) -> None:
    image = Image(tmp_path, "1.2.1")
    plan = three_steps(image)
    image.scene = {"trtllm-build": {"status": 3, "prints": ["nope"]}}
    assert image.build(plan)[0]["error"]["reason"] == "BuildFailed"
    image.scene = {}
    work = tmp_path / "engines" / ".k1.work"
    os.truncate(work / "quantize" / "rank1.safetensors", 1)
    assert "engine" in image.build(plan)[0]
    assert image.programs() == [*PROGRAMS, "quantize", "trtllm-build"]
    assert image.made() == uninterrupted(tmp_path, three_steps)


def test_a_step_with_other_arguments_is_not_taken_for_done(tmp_path: Path) -> None:
    image = Image(tmp_path)
    image.scene = {"trtllm-build": {"status": 3}}
    image.build(image.plan(dtype="float16"))
    image.scene = {}
    assert "engine" in image.build(image.plan(dtype="bfloat16"))[0]
    assert image.programs() == ["convert", "trtllm-build"] * 2


def test_a_second_builder_waits_and_uses_the_engine(tmp_path: Path) -> None:
    """While a Job replaces its pod, the old pod may still run; a lock lets only one pod build."""
    image = Image(tmp_path)
    plan = image.plan()
    with stopped_at(image, "trtllm-build", plan) as (first, _):
        second = image.start(plan)
        assert second.stdout is not None
        assert second.stdout.readline().startswith("progress phase=wait")
        first.send_signal(signal.SIGTERM)
        first.wait(DEADLINE_SECONDS)
        rest, _ = second.communicate(timeout=DEADLINE_SECONDS)
    assert second.returncode == 0, rest
    assert image.programs() == ["convert", "trtllm-build", "trtllm-build"]
    assert image.left() == ["k1"]


def test_a_waiting_builder_can_be_stopped(tmp_path: Path) -> None:
    image = Image(tmp_path)
    plan = image.plan()
    with stopped_at(image, "convert", plan):
        second = image.start(plan)
        assert second.stdout is not None
        second.stdout.readline()
        second.send_signal(signal.SIGTERM)
        rest, _ = second.communicate(timeout=DEADLINE_SECONDS)
    assert second.returncode == 1, rest
    assert image.programs() == ["convert"]


def test_a_volume_without_locks_still_builds(tmp_path: Path) -> None:
    """Without locks each builder uses its own folder; `flock` fails as on such a file system."""
    image = Image(tmp_path)
    program = (
        "import errno, fcntl, sys; sys.path.insert(0, sys.argv.pop(1)); import build_engine\n"
        "def flock(*arguments): raise OSError(errno.ENOLCK, 'No locks available')\n"
        "fcntl.flock = flock; sys.exit(build_engine.main())"
    )
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(image.plan()), encoding="utf-8")
    folder = str(BUILD.parent)
    run = [sys.executable, "-c", program, folder, "--plan", str(path)]
    subprocess.run(run, check=True, capture_output=True, env=image.environment())
    assert sorted(image.made()) == ["config.json", "rank0.engine"]
    assert [name for name in image.left() if name.endswith(".work")] == []


def test_what_a_killed_builder_left_of_a_step_is_removed(tmp_path: Path) -> None:
    image = Image(tmp_path)
    shutil.copytree(tmp_path / "base", tmp_path / "engines/.k1.work/convert.old.part")
    assert "engine" in image.build(image.plan())[0]
    assert image.left() == ["k1"]


def test_the_work_of_an_abandoned_build_is_removed_after_a_day(tmp_path: Path) -> None:
    image = Image(tmp_path)
    engines = tmp_path / "engines"
    for name in ("old", "held", "young"):
        (engines / f".{name}.work").mkdir(parents=True)
        if name != "young":
            os.utime(engines / f".{name}.work", (0, 0))
    with (engines / ".held.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "engine" in image.build(image.plan())[0]
    assert image.left() == [".held.lock", ".held.work", ".young.work", "k1"]
