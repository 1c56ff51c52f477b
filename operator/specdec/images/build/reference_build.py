"""The Reference build: a Llama checkpoint into the one file that the CPU backend maps."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import convert
import engine_file
from checkpoint import Checkpoint
from plan import BuildPlan, engine_config
from product import complete, report_progress, summary, write_manifest


def build(data: Mapping[str, Any]) -> dict[str, Any]:
    """Build the engine of a plan, or find it complete.

    The engine is written into a temporary sibling of the output and renamed when complete. A
    killed build leaves nothing under the final name, and the next build removes the temporary
    sibling.

    Returns:
        the termination message's `engine` object.

    Raises:
        BuildError: the plan or the checkpoint is unusable.
        OSError: the volume is full or not writable.
    """
    plan = BuildPlan.read(data)
    manifest = complete(plan.output)
    if manifest is not None:
        report_progress("done", 100, f"engine {plan.key} is already complete")
        return _summary(plan, manifest)
    plan.output.parent.mkdir(parents=True, exist_ok=True)
    for stale in plan.output.parent.glob(f".{plan.output.name}.*.tmp"):
        shutil.rmtree(stale, ignore_errors=True)
    scratch = Path(
        tempfile.mkdtemp(prefix=f".{plan.output.name}.", suffix=".tmp", dir=plan.output.parent)
    )
    try:
        written = _fill(plan, scratch)
        scratch.chmod(0o755)
        if plan.output.exists():  # without a manifest: not one of ours, or damaged
            shutil.rmtree(plan.output)
        scratch.rename(plan.output)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    report_progress("done", 100, f"engine {plan.key} built in {written['seconds']} s")
    return _summary(plan, written)


def _fill(plan: BuildPlan, scratch: Path) -> dict[str, Any]:
    start = time.monotonic()
    report_progress("read", 0, f"checkpoint {plan.checkpoint}")
    checkpoint = Checkpoint(plan.checkpoint)
    shape = convert.Shape.read(checkpoint.config)
    config = engine_config(plan, checkpoint.config, shape)
    report_progress("convert", 0, f"{checkpoint.nbytes >> 20} MiB of weights")
    engine_file.write(
        scratch / "rank0.engine",
        convert.shapes(shape),
        convert.arrays(checkpoint, shape),
        plan.dtype,
        lambda share: report_progress("convert", int(100 * share)),
    )
    (scratch / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    report_progress("manifest", 0)
    seconds = time.monotonic() - start
    files = ("config.json", "rank0.engine")
    return write_manifest(scratch, plan.key, plan.role, files, seconds, shape.vocab)


def _summary(plan: BuildPlan, manifest: Mapping[str, Any]) -> dict[str, Any]:
    config = {
        "maxBatchSize": plan.max_batch_size,
        "maxSeqLen": plan.max_seq_len,
        "dtype": plan.dtype,
        "speculativeDecodingMode": plan.mode,
    }
    return summary(manifest, plan.max_draft_len, config)
