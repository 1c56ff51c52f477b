"""MemoryFits: whether the models fit on the GPU product, before a GPU builds anything."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from specdec import backends
from specdec.api.conditions import Condition, Status, Type
from specdec.api.gpus import gpu
from specdec.api.model import SpeculativeModel
from specdec.api.model_spec import GpuClass
from specdec.api.reasons import MemoryReason, Reason
from specdec.backends.facts import Checkpoint
from specdec.backends.footprint import Footprint
from specdec.backends.memory_plan import MIB, Budget, Device, MemoryPlan, plan
from specdec.pipeline.stage import Context, Outcome
from specdec.pipeline.stages import memory_advice

# Far above any GPU, and far below the largest number that the schema of the status accepts.
_MOST_MIB = 1 << 50
_MOST_PERCENT = 1_000_000


def memory(context: Context) -> Outcome:
    """Plan the memory of the GPUs.

    Later stages get the tokens of each key/value cache, and the limits that the spec leaves open.
    """
    outcome = _planned(context)
    model = outcome.model or context.model
    roles = backends.of(model).servers(model).devices
    limits = {role: model.models[role].limits.model_dump(by_alias=True) for role in roles}
    return replace(outcome, status={"plan": {**outcome.status.get("plan", {}), "limits": limits}})


def _planned(context: Context) -> Outcome:
    model = context.model
    backend = backends.of(model)
    if backend.memory is None:
        return _outcome(
            context, "True", MemoryReason.NOT_NEEDED, "the backend serves from the host's memory"
        )
    totals = {role: _total(model.gpu(role)) for role in model.models}
    known = {role: total for role, total in totals.items() if total is not None}
    ranks = backend.servers(model)
    model = backends.sized(model, context.facts.checkpoints, known.get("target", 0))
    if unknown := next((role for role in totals if role not in known), None):
        message = _unknown_gpu(model, unknown)
        outcome = _outcome(context, "Unknown", MemoryReason.UNKNOWN_GPU, message)
        return replace(outcome, model=model)
    needs = backend.memory(model, context.facts.checkpoints)
    missing = [role for role in ranks.devices if role not in needs]
    if missing:
        message = _unknown_size(missing, context.facts.checkpoints)
        outcome = _outcome(context, "Unknown", MemoryReason.UNKNOWN_SIZE, message)
        return replace(outcome, model=model)
    planned = plan(known["target"], ranks, needs, _budgets(model, needs), known)
    if model is context.model:
        return _judge(context, planned, needs)
    # The formula of these limits lets sequences of full length wait for each other.
    outcome = _judge(replace(context, model=model), replace(planned, tight=()), needs)
    return replace(_with_limits(outcome, model), model=model)


def _unknown_size(roles: list[str], checkpoints: Mapping[str, Checkpoint]) -> str:
    """Why the caches of some roles are not planned."""
    facts = [checkpoints[role].facts for role in roles if role in checkpoints]
    kinds = [own.unplanned_caches for own in facts if own.unplanned_caches]
    why = f" (no formula for the cache of {', '.join(kinds)})" if kinds else ""
    return f"the size of {' and '.join(roles)} is not known{why}: caches are not planned"


def replan(model: SpeculativeModel, checkpoints: Mapping[str, Checkpoint]) -> MemoryPlan | None:
    """The plan of a resource; None if it does not fit its GPUs, or if a size is not known."""
    totals = {role: _total(model.gpu(role)) for role in model.models}
    known = {role: total for role, total in totals.items() if total is not None}
    if known.keys() < totals.keys():
        return None
    backend = backends.of(model)
    if backend.memory is None:
        return None
    model = backends.sized(model, checkpoints, known["target"])
    needs, ranks = backend.memory(model, checkpoints), backend.servers(model)
    if not ranks.devices.keys() <= needs.keys():
        return None
    planned = plan(known["target"], ranks, needs, _budgets(model, needs), known)
    return planned if planned.fits and not _quantizing(model, planned, needs) else None


def _judge(context: Context, planned: MemoryPlan, needs: Mapping[str, Footprint]) -> Outcome:
    """Whether the plan fits. If not, spec.checks.memory decides whether the chain goes on."""
    severity = context.model.spec.checks.memory
    problem = _quantizing(context.model, planned, needs)
    message = problem or _message(context.model, planned, needs)
    if problem or not planned.fits:
        message += _advice(context)
    if planned.fits and not problem:
        if planned.tight:
            reason = MemoryReason.TIGHT_GPU_MEMORY
        else:
            reason = MemoryReason.SUFFICIENT_GPU_MEMORY
            message += memory_advice.unused(context.model, planned, _replanned(context))
        return _outcome(context, "True", reason, message, planned, planned.kv_tokens)
    if severity == "Enforce":
        return _outcome(context, "False", MemoryReason.INSUFFICIENT_GPU_MEMORY, message, planned)
    # The models are served although the plan does not fit. Each cache gets room for at least one
    # sequence of full length.
    tokens = {role: max(planned.kv_tokens[role], need.sequence) for role, need in needs.items()}
    if severity == "Warn":
        warning = f"not enforced, because spec.checks.memory is Warn: {message}"
        return _outcome(
            context, "True", MemoryReason.INSUFFICIENT_GPU_MEMORY, warning, planned, tokens
        )
    disabled = "spec.checks.memory is Disabled"
    return _outcome(context, "True", MemoryReason.UNCHECKED, disabled, planned, tokens)


def _with_limits(outcome: Outcome, model: SpeculativeModel) -> Outcome:
    """The outcome whose message has the limits that the spec leaves open."""
    values = model.spec.target.limits.model_dump(by_alias=True)
    text = ", ".join(f"{name} {value}" for name, value in values.items())
    (condition,) = outcome.conditions
    message = f"{condition.message}; limits follow from checkpoint and memory: {text}"
    return replace(outcome, conditions=(replace(condition, message=message),))


def _outcome(
    context: Context,
    status: Status,
    reason: Reason,
    message: str,
    planned: MemoryPlan | None = None,
    tokens: Mapping[str, int] | None = None,
) -> Outcome:
    status_ = {"plan": {"memory": _entry(planned, message)}} if planned else {}
    return Outcome(
        (Condition(Type.MEMORY_FITS, status, reason, message),),
        replace(context.facts, kv_tokens=dict(tokens or {})),
        proceed=status != "False",
        status=status_,
    )


def _total(spec: GpuClass) -> int | None:
    """MiB of one GPU: the value in the spec, or else that of the product in the table."""
    if spec.memory_mi_b is not None:
        return spec.memory_mi_b
    product = gpu(spec.product) if spec.product else None
    return product.memory_mib if product else None


def _unknown_gpu(model: SpeculativeModel, role: str) -> str:
    product, field = model.gpu(role).product, model.gpu_field(role)
    if product is None:
        return (
            f"{field}.product is empty: set it to the nodes' label nvidia.com/gpu.product, or set "
            f"{field}.memoryMiB; until then caches are not planned"
        )
    return (
        f"{field}.product is {product}, whose memory this release does not know: "
        f"set {field}.memoryMiB to what nvidia-smi shows; until then caches are not planned"
    )


def _budgets(model: SpeculativeModel, roles: Iterable[str]) -> dict[str, Budget]:
    caches = {role: model.models[role].kv_cache for role in roles}
    return {r: Budget(cache.max_tokens, cache.memory_percent) for r, cache in caches.items()}


def _message(model: SpeculativeModel, planned: MemoryPlan, needs: Mapping[str, Footprint]) -> str:
    if planned.crowded:
        return _crowded(planned.crowded[0])
    if planned.overdrawn:
        return _overdrawn(planned.overdrawn[0])
    if planned.short:
        return _short(model, planned, needs, planned.short[0])
    fullest = max(planned.devices, key=lambda device: device.used)
    caches = " and ".join(f"{tokens} tokens of the {r}" for r, tokens in planned.kv_tokens.items())
    used = _sum(fullest.parts.values())
    text = (
        f"{used} of {_mib(fullest.total)} MiB ({fullest.percent} %) are taken on GPU "
        f"{fullest.name}; caches hold {caches}"
    )
    if not planned.tight:
        return text
    role = planned.tight[0]
    need, tokens = needs[role], planned.kv_tokens[role]
    return (
        f"{text}; the cache of the {role} has room for {tokens // need.sequence} of "
        f"{need.full_batch // need.sequence} sequences of full length, and the others wait: "
        "lower limits.maxSeqLen or limits.maxBatchSize, or set quantization.kvCache to FP8"
    )


def _quantizing(
    model: SpeculativeModel, planned: MemoryPlan, needs: Mapping[str, Footprint]
) -> str:
    """Why the GPUs of a build cannot hold a model while it is quantized; empty if they can."""
    for role, need in needs.items():
        total = _devices(planned, role)[0].total
        if need.calibration > total:
            return (
                f"quantization.method of the {role} is {model.models[role].quantization.method}, "
                f"and quantizing it takes {_mib(need.calibration)} MiB of each of the "
                f"{need.build_gpus} GPUs of its build, which have {_mib(total)}: set the {role}'s "
                "source to a checkpoint that is already quantized and quantization.method to "
                "None, set engine.prebuilt to an engine, or "
            )
    return ""


def _replanned(context: Context) -> Callable[[SpeculativeModel], MemoryPlan | None]:
    """A function that plans a changed resource; None if a stage refuses it."""
    checkpoints = context.facts.checkpoints
    facts = {role: checkpoint.facts for role, checkpoint in checkpoints.items()}

    def replanned(changed: SpeculativeModel) -> MemoryPlan | None:
        if not memory_advice.accepted(changed, facts, context.images):
            return None
        return replan(changed, checkpoints)

    return replanned


def _advice(context: Context) -> str:
    """The changes that make the models fit, as the end of the message."""
    return memory_advice.sentence(memory_advice.alternatives(context.model, _replanned(context)))


def _crowded(device: Device) -> str:
    return (
        f"GPU {device.name} has {_mib(device.total)} MiB, and without any cache "
        f"{_terms(device, caches=False)} MiB are needed: "
    )


def _overdrawn(device: Device) -> str:
    return (
        f"GPU {device.name} has {_mib(device.total)} MiB, and {_terms(device)} MiB are needed "
        "with the caches that the spec fixes: lower kvCache.maxTokens or kvCache.memoryPercent, "
        "remove both fields so that the operator plans the caches, or "
    )


def _short(
    model: SpeculativeModel, planned: MemoryPlan, needs: Mapping[str, Footprint], role: str
) -> str:
    limit = model.models[role].limits.max_seq_len
    device = min(_devices(planned, role), key=lambda d: d.total - d.used)
    return (
        f"the cache of the {role} has room for {planned.kv_tokens[role]} tokens, and its longest "
        f"sequence has {needs[role].sequence} (limits.maxSeqLen {limit} and the draft tokens, "
        f"rounded up to whole blocks): GPU {device.name} has {_mib(device.total)} MiB, of which "
        f"{_terms(device, caches=False)} are taken; "
    )


def _devices(planned: MemoryPlan, role: str) -> list[Device]:
    """The GPUs of a role."""
    return [d for d in planned.devices if role in d.name.partition(":")[0].split("+")]


def _terms(device: Device, *, caches: bool = True) -> str:
    """The terms of a sum and the sum, as in "targetWeights 15317 + runtime 1254 = 16571"."""
    parts = {n: p for n, p in device.parts.items() if caches or not n.endswith("KvCache")}
    terms = " + ".join(f"{name} {_mib(size)}" for name, size in parts.items())
    return f"{terms} = {_sum(parts.values())}"


def _entry(planned: MemoryPlan, message: str) -> dict[str, Any]:
    """The plan in the fields of `status.plan.memory`."""
    devices = [
        {
            "device": device.name,
            "gpuMiB": device.total // MIB,
            "usedMiB": _sum(device.parts.values()),
            "percent": min(device.percent, _MOST_PERCENT),
            "parts": {name: _mib(size) for name, size in device.parts.items()},
        }
        for device in planned.devices
    ]
    return {"devices": devices, "kvTokens": dict(planned.kv_tokens), "message": message}


def _mib(size: int) -> int:
    return min(math.ceil(size / MIB), _MOST_MIB)


def _sum(sizes: Iterable[int]) -> int:
    """The sum of the rounded terms (MiB), so that a printed sum equals its terms."""
    return sum(_mib(size) for size in sizes)
