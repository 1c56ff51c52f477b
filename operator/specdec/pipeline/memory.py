"""MemoryFits: both models beside each other on the GPU product, before a GPU builds anything."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from specdec import backends
from specdec.api.conditions import Condition, Status, Type
from specdec.api.gpus import gpu
from specdec.api.model import SpeculativeModel
from specdec.backends.footprint import Footprint
from specdec.backends.memory_plan import MIB, Budget, Device, MemoryPlan, plan
from specdec.pipeline.memory_inputs import footprints
from specdec.pipeline.stage import Context, Outcome

_SMALLER = (
    "raise parallelism.tensor, quantize the model, lower limits.maxNumTokens or "
    "limits.maxBatchSize, or choose a GPU product with more memory"
)
# Far above any GPU; what lies beyond would not pass the status' schema.
_MOST_MIB = 1 << 50
_MOST_PERCENT = 1_000_000


def memory(context: Context) -> Outcome:
    """Plan the GPUs' memory and hand the caches' budgets on."""
    model = context.model
    if not model.spec.runtime.backend.on_gpus:
        return _outcome(context, "True", "NotNeeded", "the backend serves from the host's memory")
    total = _total(model)
    if total is None:
        return _outcome(context, "Unknown", "UnknownGpu", _unknown_gpu(model))
    found = footprints(model, context.facts.checkpoints)
    missing = [role for role in model.models if role not in found]
    if missing:
        message = f"the size of {' and '.join(missing)} is not known: caches are not planned"
        return _outcome(context, "Unknown", "UnknownSize", message)
    ranks = backends.strategy(model.spec.runtime.backend).ranks(model)
    made = plan(total, ranks, found, _budgets(model))
    return _judged(context, made, found)


def _judged(context: Context, made: MemoryPlan, found: Mapping[str, Footprint]) -> Outcome:
    """What the plan means: whether the chain goes on is a matter of spec.checks.memory."""
    severity = context.model.spec.checks.memory
    message = _words(context.model, made, found)
    if made.fits:
        reason = "TightGpuMemory" if made.tight else "SufficientGpuMemory"
        return _outcome(context, "True", reason, message, made, made.kv_tokens)
    if severity == "Enforce":
        return _outcome(context, "False", "InsufficientGpuMemory", message, made)
    # Served all the same: one longest sequence is the least a cache is of use for.
    tokens = {role: max(made.kv_tokens[role], f.sequence) for role, f in found.items()}
    if severity == "Warn":
        warning = f"served all the same, for spec.checks.memory is Warn: {message}"
        return _outcome(context, "True", "InsufficientGpuMemory", warning, made, tokens)
    return _outcome(context, "True", "Unchecked", "spec.checks.memory is Disabled", made, tokens)


def _outcome(
    context: Context,
    status: Status,
    reason: str,
    message: str,
    made: MemoryPlan | None = None,
    tokens: Mapping[str, int] | None = None,
) -> Outcome:
    shown = {"plan": {"memory": _shown(made, message)}} if made else {}
    return Outcome(
        (Condition(Type.MEMORY_FITS, status, reason, message),),
        replace(context.facts, kv_tokens=dict(tokens or {})),
        proceed=status != "False",
        status=shown,
    )


def _total(model: SpeculativeModel) -> int | None:
    """MiB of one GPU: the spec's word, else the product's."""
    wanted = model.spec.gpu
    if wanted.memory_mi_b is not None:
        return wanted.memory_mi_b
    known = gpu(wanted.product) if wanted.product else None
    return known.memory_mib if known else None


def _unknown_gpu(model: SpeculativeModel) -> str:
    return (
        f"spec.gpu.product is {model.spec.gpu.product}, whose memory this release does not know: "
        "set spec.gpu.memoryMiB to what nvidia-smi shows; until then caches are not planned"
    )


def _budgets(model: SpeculativeModel) -> dict[str, Budget]:
    return {
        role: Budget(spec.kv_cache.max_tokens, spec.kv_cache.memory_percent)
        for role, spec in model.models.items()
    }


def _words(model: SpeculativeModel, made: MemoryPlan, found: Mapping[str, Footprint]) -> str:
    if made.crowded:
        return _crowded(made.crowded[0])
    if made.overdrawn:
        return _overdrawn(made.overdrawn[0])
    if made.short:
        return _short(model, made, found, made.short[0])
    fullest = max(made.devices, key=lambda device: device.used)
    caches = " and ".join(f"{tokens} tokens of the {r}" for r, tokens in made.kv_tokens.items())
    used = _sum(fullest.parts.values())
    text = (
        f"{used} of {_mib(fullest.total)} MiB ({fullest.percent} %) are taken on GPU "
        f"{fullest.name}; caches hold {caches}"
    )
    if not made.tight:
        return text
    role = made.tight[0]
    footprint, tokens = found[role], made.kv_tokens[role]
    return (
        f"{text}; the cache of the {role} has room for {tokens // footprint.sequence} of "
        f"{footprint.wanted // footprint.sequence} sequences of full length, more of them wait: "
        "lower limits.maxSeqLen or limits.maxBatchSize, or set quantization.kvCache to FP8"
    )


def _crowded(device: Device) -> str:
    return (
        f"GPU {device.name} has {_mib(device.total)} MiB, and without any cache "
        f"{_listed(device, caches=False)} MiB are needed: {_SMALLER}"
    )


def _overdrawn(device: Device) -> str:
    return (
        f"GPU {device.name} has {_mib(device.total)} MiB, and {_listed(device)} MiB are needed "
        "with the caches that the spec fixes: lower kvCache.maxTokens or kvCache.memoryPercent, "
        "or remove them to have them planned"
    )


def _short(
    model: SpeculativeModel, made: MemoryPlan, found: Mapping[str, Footprint], role: str
) -> str:
    limit = model.models[role].limits.max_seq_len
    here = [d for d in made.devices if role in d.name.partition(":")[0].split("+")]
    device = min(here, key=lambda d: d.total - d.used)
    return (
        f"the cache of the {role} has room for {made.kv_tokens[role]} tokens, and its longest "
        f"sequence has {found[role].sequence} (limits.maxSeqLen {limit}, draft and whole blocks "
        f"included), with {_listed(device, caches=False)} MiB taken on GPU {device.name} of "
        f"{_mib(device.total)}: lower limits.maxSeqLen, or {_SMALLER}"
    )


def _listed(device: Device, *, caches: bool = True) -> str:
    """A sum in words: "targetWeights 15317 + runtime 1254 = 16571"."""
    parts = {n: p for n, p in device.parts.items() if caches or not n.endswith("KvCache")}
    terms = " + ".join(f"{name} {_mib(size)}" for name, size in parts.items())
    return f"{terms} = {_sum(parts.values())}"


def _shown(made: MemoryPlan, message: str) -> dict[str, Any]:
    devices = [
        {
            "device": device.name,
            "gpuMiB": device.total // MIB,
            "usedMiB": _sum(device.parts.values()),
            "percent": min(device.percent, _MOST_PERCENT),
            "parts": {name: _mib(size) for name, size in device.parts.items()},
        }
        for device in made.devices
    ]
    return {"devices": devices, "kvTokens": dict(made.kv_tokens), "message": message}


def _mib(size: int) -> int:
    return min(math.ceil(size / MIB), _MOST_MIB)


def _sum(sizes: Iterable[int]) -> int:
    """Of the rounded terms, so that a reader can add them up."""
    return sum(_mib(size) for size in sizes)
