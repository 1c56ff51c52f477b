"""Run one step of a build: stream its output, report its progress, end all its processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from failure import BuildError, full
from product import report_progress
from tensorrt_steps import Step

# Seconds between SIGTERM and SIGKILL for a step's processes; a pod is given 30 altogether.
GRACE = 10.0
# Lines between two repetitions of the progress line, so that a log's tail always holds one.
_REPEAT = 20
_LINE = 400
_TAIL = 60

# A progress bar of tqdm, and the file of a rank that an engine build writes.
_BAR = re.compile(r"\b(\d{1,3})%\|")
_RANK = re.compile(r"\brank(\d+)\.(?:engine|safetensors)\b")
_ERROR = re.compile(r"^\w[\w.]*(?:Error|Exception|Failure)\b.*|.*\[E\].*|.*\berror: .*")
_LOWER = (
    "lower limits.maxBatchSize or limits.maxNumTokens, raise parallelism.tensor, quantize, or "
    "take a GPU with more memory"
)
_HOST = "raise spec.build.resources.limits.memory"
_CUDA_MEMORY = re.compile(r"CUDA out of memory|OutOfMemoryError|out of memory|OutOfMemory", re.I)
_HOST_MEMORY = re.compile(r"^MemoryError\b|Cannot allocate memory|std::bad_alloc", re.M)
_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_OFFLINE = re.compile(r"ConnectionError|Couldn't reach|Max retries exceeded|LocalEntryNotFound")


class Meter:
    """How far a build is: the finished steps and the share of the running one, as one percentage.

    It never goes back: a step may draw several progress bars one after another.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._percent = 0
        self._reported = ("", -1)

    def at(self, step: Step, share: float) -> None:
        """Record that a share (0 to 1) of a step is done; prints a line if that is news."""
        before = sum(s.weight for s in self._steps[: self._steps.index(step)])
        total = sum(s.weight for s in self._steps)
        now = int(100 * (before + min(share, 1.0) * step.weight) / total)
        self._percent = max(self._percent, now)
        if (step.name, self._percent) != self._reported:
            self._reported = (step.name, self._percent)
            self.repeat()

    def repeat(self) -> None:
        """Print the last progress line again."""
        report_progress(*self._reported)


def run(step: Step, output: Path, world: int, meter: Meter) -> None:
    """Run a step that writes into `output`.

    Raises:
        BuildError: it failed, or left files out.
    """
    meter.at(step, 0.0)
    tail: deque[str] = deque(maxlen=_TAIL)
    try:
        process = subprocess.Popen(
            step.command(output),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,  # so that its whole process group can be ended
        )
    except FileNotFoundError as error:
        raise BuildError(
            "BuildFailed",
            f"the image has no {step.argv[0]}; set spec.runtime.image to a TensorRT-LLM image",
        ) from error
    try:
        for number, line in enumerate(_lines(process), 1):
            tail.append(line)
            print(line, flush=True)
            share = _share(line, world)
            if share is not None:
                meter.at(step, share)
            elif number % _REPEAT == 0:
                meter.repeat()
        status = process.wait()
    finally:
        _end(process)
    if status != 0:
        raise _failure(step, status, list(tail))
    missing = [name for name in step.expects if not _filled(output / name)]
    if missing:
        raise BuildError(
            "BuildFailed",
            f"{_program(step)} succeeded without {', '.join(missing)}: {_last_error(list(tail))}",
        )


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    """The lines that a process prints. A carriage return ends a line too; long lines are cut."""
    stream = process.stdout
    assert stream is not None
    for line in iter(lambda: stream.readline(1 << 16), ""):
        text = line.rstrip()
        if text:
            yield text[:_LINE]


def _share(line: str, world: int) -> float | None:
    """The share of the step that is done, according to a line of its output."""
    rank = _RANK.search(line)
    if rank:
        return (int(rank.group(1)) + 1) / (world + 1)
    bar = _BAR.search(line)
    # A bar covers one part of the step, such as loading; the rank files show the rest.
    return int(bar.group(1)) / 100 / (world + 1) if bar else None


def _end(process: subprocess.Popen[str]) -> None:
    """End a step's whole process group: first with SIGTERM, then with SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            continue
    if process.stdout is not None:
        process.stdout.close()


def _failure(step: Step, status: int, tail: list[str]) -> BuildError:
    """Return the error of a failed step, from its exit status and the end of its output."""
    program, last, text = _program(step), _last_error(tail), "\n".join(tail)
    if _FULL.search(text):
        return full()
    if status == -signal.SIGKILL:
        return BuildError(
            "OutOfMemory", f"{program} was killed, most likely for host memory: {_HOST}"
        )
    if _HOST_MEMORY.search(text):
        return BuildError(
            "OutOfMemory", f"{program} could not allocate host memory: {_HOST} ({last})"
        )
    if _CUDA_MEMORY.search(text):
        return BuildError("OutOfMemory", f"{program} ran out of GPU memory: {_LOWER} ({last})")
    if step.name == "quantize" and _OFFLINE.search(text):
        return BuildError(
            "BuildFailed",
            "quantize.py could not load its calibration data; set "
            f"quantization.calibration.dataset to a directory with one ({last})",
        )
    return BuildError("BuildFailed", f"{program} failed with status {status}: {last}")


def _last_error(tail: list[str]) -> str:
    """The last line that matches an error, else the last line."""
    errors = [line for line in tail if _ERROR.fullmatch(line)]
    last = errors or tail
    return " ".join(last[-1].split())[:300] if last else "it printed nothing"


def _program(step: Step) -> str:
    return Path(step.argv[1] if step.argv[0] == "python3" else step.argv[0]).name


def _filled(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0
