"""The TensorRT build: convert or quantize, `trtllm-build`, check, publish under the key.

Everything happens in `.KEY.work` beside the output. Each step writes into a folder of its own,
which is renamed when the step is done. Then the sizes of its files are recorded: a build that is
killed at any moment resumes after the last recorded step. A lock makes a second builder of the
same key wait: while a Job replaces a pod, the old pod may still be terminating.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import image_build
import rotary
import tensorrt_plan
from failure import BuildError
from product import complete, report_progress, summary, write_manifest
from tensorrt_plan import EnginePlan
from tensorrt_run import Meter, run
from tensorrt_steps import Step, steps
from tensorrt_verify import verify

# Seconds after which the working folder of an abandoned build is removed: converted weights are
# large, and after a change of the spec no build uses the old key any more.
_KEPT = 24 * 3600.0
_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


def build(data: Mapping[str, Any], expected: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Build the engine of a plan, or find it complete.

    Args:
        data: the plan.
        expected: what the image has to hold; None builds without a check of the image.

    Returns:
        the termination message's `engine` object.

    Raises:
        BuildError: the image differs from its release, the plan or the checkpoint is unusable, or
            a step failed.
        OSError: the volume is full or not writable.
    """
    plan = tensorrt_plan.read(data)
    image = {} if expected is None else image_build.checked(plan, expected)
    if complete(plan.output) is None:
        plan.output.parent.mkdir(parents=True, exist_ok=True)
        with _workplace(plan) as work:
            # The builder that held the lock before may have finished the engine.
            if complete(plan.output) is None:
                _produce(plan, work)
    manifest = complete(plan.output)
    if manifest is None:
        raise BuildError(
            "BuildFailed", f"engine {plan.key} was deleted while it was moved into place"
        )
    report_progress("done", 100, f"engine {plan.key} is complete")
    config = _json(plan.output / "config.json")
    return (
        summary(
            manifest,
            plan.max_draft_len,
            {
                "maxBatchSize": plan.limits["maxBatchSize"],
                "maxSeqLen": plan.limits["maxSeqLen"],
                "dtype": str(config["pretrained_config"].get("dtype", plan.dtype)),
                "speculativeDecodingMode": plan.mode,
            },
        )
        | image
    )


def _produce(plan: EnginePlan, work: Path) -> None:
    config = _json(plan.checkpoint / "config.json")
    todo = steps(plan, config, work, Path.is_file)
    if plan.heads is not None:
        rotary.of_checkpoint(config)  # a damaged one is refused before a program runs
    meter = Meter(todo)
    seconds = sum(_done(step, work) or _do(step, plan, work, meter) for step in todo)
    last = todo[-1]
    engine = work / last.name
    vocab = verify(plan, _json(engine / "config.json"), engine)
    report_progress("manifest", 99)
    write_manifest(engine, plan.key, plan.role, last.expects, seconds, vocab)
    if plan.output.exists() and complete(plan.output) is None:  # not ours, or damaged
        shutil.rmtree(plan.output)
    engine.chmod(0o755)
    engine.rename(plan.output)


def _do(step: Step, plan: EnginePlan, work: Path, meter: Meter) -> float:
    """Run a step; returns its seconds."""
    start = time.monotonic()
    final = work / step.name
    shutil.rmtree(final, ignore_errors=True)
    for stale in work.glob(f"{step.name}.*.part"):
        shutil.rmtree(stale, ignore_errors=True)
    # A new name each time: processes of a killed builder may still write into the previous one.
    part = Path(tempfile.mkdtemp(prefix=f"{step.name}.", suffix=".part", dir=work))
    run(step, part, plan.world, meter)
    if step.adds_heads:
        _restore_rotary(plan, part / "config.json")
    part.rename(final)
    seconds = max(time.monotonic() - start, 0.001)
    sizes = {name: (final / name).stat().st_size for name in step.expects}
    note = work / f"{step.name}.json"
    note.with_suffix(".part").write_text(
        json.dumps({"argv": step.argv, "files": sizes, "seconds": seconds}), encoding="utf-8"
    )
    note.with_suffix(".part").rename(note)
    return seconds


def _restore_rotary(plan: EnginePlan, converted: Path) -> None:
    """Compare the rotary embedding of converted heads with that of the checkpoints."""
    base = rotary.of_checkpoint(_json(plan.checkpoint / "config.json"))
    heads = plan.heads / "config.json" if plan.heads else None
    own = _json(heads) if heads and heads.is_file() else {}
    # As in newer converters, an EAGLE net without an embedding of its own has the target's.
    net = rotary.of_checkpoint(own) if rotary.has_rotary(own) else base
    for sentence in rotary.restore(converted, base, net, plan.version):
        print(sentence, flush=True)


def _done(step: Step, work: Path) -> float | None:
    """The seconds of a step that this same command has completed; None if it must run."""
    try:
        note = json.loads((work / f"{step.name}.json").read_text(encoding="utf-8"))
        sizes = {name: (work / step.name / name).stat().st_size for name in step.expects}
    except (FileNotFoundError, ValueError):
        return None
    if note.get("argv") != list(step.argv) or note.get("files") != sizes:
        return None
    report_progress(step.name, 0, "was done before")
    return float(note["seconds"])


@contextmanager
def _workplace(plan: EnginePlan) -> Iterator[Path]:
    """The folder to work in, for this process alone; removed when the engine is in place.

    On a file system without locks each builder has a folder of its own and cannot resume.
    """
    beside = plan.output.parent
    try:
        lock = _lock(beside / f".{plan.output.name}.lock")
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        work = Path(tempfile.mkdtemp(prefix=f".{plan.output.name}.", suffix=".work", dir=beside))
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return
    try:
        work = beside / f".{plan.output.name}.work"
        work.mkdir(exist_ok=True)
        _sweep(beside, work)
        yield work
        shutil.rmtree(work, ignore_errors=True)
        (beside / f".{plan.output.name}.lock").unlink(missing_ok=True)
    finally:
        os.close(lock)


def _lock(path: Path) -> int:
    """Take the lock, waiting while another builder holds it; returns its descriptor.

    A builder that finishes removes the file: then the new file has to be locked.
    """
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                report_progress("wait", 0, "another builder of this engine is at work")
                fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists() and path.stat().st_ino == os.fstat(lock).st_ino:
                return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def _sweep(beside: Path, own: Path) -> None:
    """Remove the folders of builds that ended long ago, unless a builder holds their lock."""
    for work in beside.glob(".*.work"):
        if work == own:
            continue
        path = work.with_suffix(".lock")
        try:
            if time.time() - work.stat().st_mtime < _KEPT:
                continue
            lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:  # another builder removed it
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            shutil.rmtree(work, ignore_errors=True)
            path.unlink(missing_ok=True)
        finally:
            os.close(lock)


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BuildError(
            "CheckpointCorrupt", f"{path.parent} has no {path.name}; fetch it again"
        ) from None
    except ValueError as error:
        raise BuildError("CheckpointCorrupt", f"{path} is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise BuildError("CheckpointCorrupt", f"{path} is not a JSON object")
    return value
