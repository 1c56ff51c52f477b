"""Build one engine directory: `python3 build_engine.py --plan PLAN.json` (`-` reads stdin).

The plan is one JSON object: backend, role, checkpoint, output, key, dtype, limits, maxDraftTokens,
speculativeDecodingMode, lookahead, version. The engine is written into a temporary sibling of
`output`, `manifest.json` last, and renamed when complete: a killed build leaves nothing under the
final name, and the next one removes what it left. Needs Python 3 and NumPy only.

Progress goes to stdout (`progress phase=convert percent=40`), the result as one JSON object into
the termination message: `{"engine": {...}}` or `{"error": {"reason", "message"}}`.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import convert
import engine_file
from checkpoint import BuildError, Checkpoint

# The numbers TensorRT-LLM's own config.json uses.
_MODES = {"none": 1, "draft_tokens_external": 2, "lookahead_decoding": 8}


class Cancelled(BaseException):
    """SIGTERM arrived; a BaseException so that no handler of errors takes it for one."""


@dataclass(frozen=True)
class Plan:
    """What to build. Limits are in tokens, except `max_batch_size` in sequences."""

    checkpoint: Path
    output: Path
    key: str
    role: str
    dtype: str
    max_batch_size: int
    max_input_len: int
    max_seq_len: int
    max_num_tokens: int
    max_draft_len: int
    mode: str
    lookahead: tuple[int, int, int] | None
    version: str

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Plan:
        """Check a plan and fill in what it may leave out.

        Raises:
            BuildError: a field is missing or has a value this build cannot honour.
        """
        try:
            return cls._from_json(data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BuildError(
                "PlanInvalid", f"the build plan is not usable ({type(error).__name__}: {error})"
            ) from error

    @classmethod
    def _from_json(cls, data: Mapping[str, Any]) -> Plan:
        _require(data, "backend", ("Reference",))
        _require(data, "dtype", ("auto", "float32", "float16"), "auto")
        _require(data, "speculativeDecodingMode", tuple(_MODES), "none")
        for key in ("tensorParallel", "pipelineParallel"):
            _require(data, key, (1,), 1)
        limits, shape = data["limits"], data.get("lookahead")
        names = ("windowSize", "ngramSize", "verificationSetSize")
        dtype = str(data.get("dtype", "auto"))
        return cls(
            checkpoint=Path(data["checkpoint"]),
            output=Path(data["output"]),
            key=str(data["key"]),
            role=str(data.get("role", "target")),
            dtype="float32" if dtype == "auto" else dtype,
            max_batch_size=_positive(limits, "maxBatchSize"),
            max_input_len=_positive(limits, "maxInputLen"),
            max_seq_len=_positive(limits, "maxSeqLen"),
            max_num_tokens=_positive(limits, "maxNumTokens"),
            max_draft_len=int(data.get("maxDraftTokens") or 0),
            mode=str(data.get("speculativeDecodingMode", "none")),
            lookahead=None if not shape else tuple(int(shape[name]) for name in names),  # type: ignore[arg-type]
            version=str(data.get("version", "")),
        )


def _require(
    data: Mapping[str, Any], key: str, allowed: tuple[object, ...], default: object = None
) -> None:
    value = data.get(key, default)
    if value not in allowed:
        wanted = ", ".join(str(item) for item in allowed)
        raise BuildError(
            "PlanInvalid", f"{key}: {value!r} must be {wanted} for the Reference build"
        )


def _positive(limits: Mapping[str, Any], key: str) -> int:
    value = int(limits[key])
    if value < 1:
        raise BuildError("PlanInvalid", f"limits.{key}: {value} must be at least 1")
    return value


def engine_config(plan: Plan, config: Mapping[str, Any], shape: convert.Shape) -> dict[str, Any]:
    """Return the engine's `config.json`, with the keys a TensorRT-LLM engine has."""
    base, scaling = convert.rotary(config)
    model = {
        "architecture": "LlamaForCausalLM",
        "dtype": plan.dtype,
        "logits_dtype": "float32",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_size": shape.head,
        "hidden_act": "silu",
        "norm_epsilon": float(config.get("rms_norm_eps", 1e-6)),
        "position_embedding_type": "rope_gpt_neox",
        "max_position_embeddings": int(config.get("max_position_embeddings") or plan.max_seq_len),
        "rotary_base": base,
        "rotary_scaling": scaling,
        "share_embedding_table": shape.tied,
        "mapping": {"world_size": 1, "tp_size": 1, "pp_size": 1, "cp_size": 1, "gpus_per_node": 1},
        "quantization": {"quant_algo": None, "kv_cache_quant_algo": None},
    }
    build = {
        "max_batch_size": plan.max_batch_size,
        "max_input_len": plan.max_input_len,
        "max_seq_len": plan.max_seq_len,
        "max_num_tokens": plan.max_num_tokens,
        "opt_num_tokens": plan.max_batch_size,
        "max_beam_width": 1,
        "max_draft_len": plan.max_draft_len,
        "speculative_decoding_mode": _MODES[plan.mode],
        "kv_cache_type": "PAGED",
        "gather_context_logits": True,
        "gather_generation_logits": True,
        "strongly_typed": True,
        "weight_streaming": False,
        "lookahead_config": plan.lookahead,
        "plugin_config": {"use_paged_context_fmha": True, "tokens_per_block": 128},
    }
    return {"version": plan.version, "pretrained_config": model, "build_config": build}


def build(plan: Plan) -> dict[str, Any]:
    """Build the engine, or find it complete.

    Returns:
        the termination message's `engine` object.

    Raises:
        BuildError: the checkpoint is unusable.
        OSError: the volume is full or not writable.
    """
    manifest = plan.output / "manifest.json"
    if manifest.is_file():
        _say("done", 100, f"engine {plan.key} is already complete")
        return _summary(plan, json.loads(manifest.read_text(encoding="utf-8")))
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
    _say("done", 100, f"engine {plan.key} built in {written['seconds']} s")
    return _summary(plan, written)


def _fill(plan: Plan, scratch: Path) -> dict[str, Any]:
    start = time.monotonic()
    _say("read", 0, f"checkpoint {plan.checkpoint}")
    checkpoint = Checkpoint(plan.checkpoint)
    shape = convert.Shape.read(checkpoint.config)
    config = engine_config(plan, checkpoint.config, shape)
    _say("convert", 0, f"{checkpoint.nbytes >> 20} MiB of weights")
    engine_file.write(
        scratch / "rank0.engine",
        convert.shapes(shape),
        convert.arrays(checkpoint, shape),
        plan.dtype,
        lambda share: _say("convert", int(100 * share)),
    )
    (scratch / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    _say("manifest", 0)
    files = {name: _describe(scratch / name) for name in ("config.json", "rank0.engine")}
    manifest = {
        "key": plan.key,
        "role": plan.role,
        "files": files,
        "seconds": round(time.monotonic() - start, 2),
        "builder": builder_hash(),
        "vocabSize": shape.vocab,
    }
    (scratch / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return manifest


def builder_hash() -> str:
    """Hash the build's own source; part of what decides whether engines are equal."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).resolve().parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _describe(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {
            "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
            "bytes": path.stat().st_size,
        }


def _summary(plan: Plan, manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "key": manifest["key"],
        "bytes": sum(int(entry["bytes"]) for entry in manifest["files"].values()),
        "seconds": manifest["seconds"],
        "maxDraftLen": plan.max_draft_len,
        "vocabSize": manifest["vocabSize"],
        "config": {
            "maxBatchSize": plan.max_batch_size,
            "maxSeqLen": plan.max_seq_len,
            "dtype": plan.dtype,
            "speculativeDecodingMode": plan.mode,
        },
    }


def _say(phase: str, percent: int, note: str = "") -> None:
    print(f"progress phase={phase} percent={percent} {note}".rstrip(), flush=True)


def _explain(error: BaseException, plan: Plan) -> BuildError:
    """Give an error of the system the reason and the mend of a build."""
    if isinstance(error, BuildError):
        return error
    if isinstance(error, Cancelled):
        return BuildError("Cancelled", "the build was stopped before it was complete")
    if isinstance(error, MemoryError):
        return BuildError("OutOfMemory", "not enough memory for one layer; raise the Job's limit")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return BuildError(
            "VolumeFull",
            f"the volume of {plan.output.parent} is full; enlarge the claim or free space on it",
        )
    if isinstance(error, OSError):
        return BuildError("VolumeUnusable", f"the build could not read or write: {error}")
    return BuildError("Internal", f"the build failed: {type(error).__name__}: {error}")


def _report(message: Mapping[str, Any]) -> None:
    """Leave the result where the kubelet looks for it; outside a pod there is no such file."""
    path = os.environ.get("SPECDEC_TERMINATION_LOG", "/dev/termination-log")
    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(message, file)
    except OSError as error:
        print(f"no termination message written: {error}", file=sys.stderr)


def _cancel(signum: int, frame: FrameType | None) -> NoReturn:
    raise Cancelled


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0 when the engine is in place, 1 with one sentence when not."""
    parser = argparse.ArgumentParser(description="Build one engine directory")
    parser.add_argument("--plan", required=True, help="the plan's JSON file, or - for stdin")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _cancel)
    plan: Plan | None = None
    try:
        text = sys.stdin.read() if options.plan == "-" else Path(options.plan).read_text("utf-8")
        plan = Plan.read(json.loads(text))
        _report({"engine": build(plan)})
    except (Exception, Cancelled) as error:  # noqa: BLE001 - each becomes a reason and a sentence
        cause = BuildError("PlanInvalid", f"the build plan cannot be read: {error}")
        if plan is not None or isinstance(error, BuildError):
            cause = _explain(error, plan) if plan is not None else error  # type: ignore[assignment]
        _report({"error": {"reason": cause.reason, "message": str(cause)}})
        print(f"build_engine.py: {cause}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
