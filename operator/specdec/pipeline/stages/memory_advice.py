"""Changes of a resource that make its models fit: each was planned before a message names it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.api.gpus import products
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Images
from specdec.backends.memory_plan import MemoryPlan
from specdec.pipeline import validation
from specdec.pipeline.validation import compatibility

# GPUs of one pod: common nodes have no more.
_GPUS = 8
# No message advises limits below these: such a service would be of little use.
_LEAST_TOKENS = 512
# Less than this share of a GPU is not worth a warning.
_EMPTY_PERCENT = 25
# Batch sizes that a message advises are multiples of this; the definition allows the largest.
_BATCHES = 8
_LARGEST_BATCH = 4096
_PLACES = {"target": ("target",), "draft": ("speculation", "draftTarget", "draft")}
_Body = dict[str, Any]
# The plan of a changed resource; None if it is refused, or if it does not fit.
Replan = Callable[[SpeculativeModel], MemoryPlan | None]


@dataclass(frozen=True)
class Change:
    """One change: how a message asks for it, and the resource after it."""

    text: str
    model: SpeculativeModel


def alternatives(model: SpeculativeModel, replan: Replan) -> list[str]:
    """What to change in a resource that does not fit, as parts of a sentence; at least one."""
    kinds = (_splits(model), _products(model), _limits(model))
    usable = (next((c.text for c in changes if replan(c.model)), "") for changes in kinds)
    return list(filter(None, usable)) or [
        "choose a smaller model, or a checkpoint that is quantized"
    ]


def unused(model: SpeculativeModel, planned: MemoryPlan, replan: Replan) -> str:
    """A warning about memory that the limits leave empty; empty if little is left."""
    fullest = max(planned.devices, key=lambda device: device.used)
    empty = 100 - fullest.percent
    if empty < _EMPTY_PERCENT:
        return ""
    text = f"; warning: {empty} % of GPU {fullest.name} stay empty"
    best = _larger_batch(model, replan)
    return f"{text}: raise limits.maxBatchSize to {best} to use more of it" if best else text


def _larger_batch(model: SpeculativeModel, replan: Replan) -> int | None:
    """The largest batch of full sequences that fits, a multiple of 8; None if none is larger."""
    limits = [spec.limits for spec in model.models.values()]
    # A step has a token of each request at least.
    most = min(own.max_num_tokens for own in limits)
    present = min(own.max_batch_size for own in limits)
    low, high = present // _BATCHES, min(most, _LARGEST_BATCH) // _BATCHES
    while low < high:
        middle = (low + high + 1) // 2
        batch = middle * _BATCHES
        places = {(*_PLACES[role], "limits", "maxBatchSize"): batch for role in model.models}
        changed = replan(_changed(model, places))
        if changed is None or changed.tight:
            high = middle - 1
        else:
            low = middle
    return low * _BATCHES if low * _BATCHES > present else None


def sentence(texts: list[str]) -> str:
    """Alternatives as the end of a sentence, as in "a, b, or c"."""
    *first, last = texts
    return f"{', '.join(first)}, or {last}" if first else last


def accepted(
    model: SpeculativeModel, facts: Mapping[str, CheckpointFacts], images: Images
) -> bool:
    """Whether the stages before the memory plan accept a resource."""
    if validation.first_problem(model, images) is not None:
        return False
    return not compatibility.judge(model, facts).refused


def _splits(model: SpeculativeModel) -> Iterator[Change]:
    """More GPUs for the target, or for a draft with a split of its own."""
    for role, spec in model.models.items():
        pod = _GPUS * model.spec.serving.nodes_per_replica // spec.parallelism.pipeline
        each = pod // model.spec.runtime.instances
        for tensor in range(spec.parallelism.tensor + 1, each + 1):
            path = (*_PLACES[role], "parallelism", "tensor")
            changed = _changed(model, {path: tensor})
            yield Change(f"raise parallelism.tensor of the {role} to {tensor}", changed)


def _products(model: SpeculativeModel) -> Iterator[Change]:
    """GPU products with more memory, the smallest first."""
    if model.spec.gpu.memory_mi_b is not None:
        return
    for product in sorted(products().values(), key=lambda product: product.memory_mib):
        changed = _changed(model, {("gpu", "product"): product.product})
        yield Change(f"set spec.gpu.product to {product.product}", changed)


def _limits(model: SpeculativeModel) -> Iterator[Change]:
    """Shorter sequences, or smaller batches and steps, by halves."""
    for field in ("maxSeqLen", "maxBatchSize", "maxNumTokens"):
        least = 1 if field == "maxBatchSize" else _LEAST_TOKENS
        value = max(_limit(model, role, field) for role in model.models)
        while (value := value // 2) >= least:
            # Draft and target process the same sequences, so both get the limit.
            own = {
                (*_PLACES[role], "limits", field): min(value, _limit(model, role, field))
                for role in model.models
            }
            text = f"lower limits.{field} to {value}"
            if field == "maxSeqLen" and _limit(model, "target", "maxInputLen") >= value:
                # A prompt is shorter than the sequence.
                prompt = value - value // 4
                own |= {(*_PLACES[role], "limits", "maxInputLen"): prompt for role in model.models}
                text += f" and maxInputLen to {prompt}"
            yield Change(text, _changed(model, own))


def _limit(model: SpeculativeModel, role: str, field: str) -> int:
    values = model.models[role].limits.model_dump(by_alias=True)
    return int(values[field])


def _changed(model: SpeculativeModel, values: Mapping[tuple[str, ...], Any]) -> SpeculativeModel:
    """The resource with other values at some paths of its spec."""
    body: _Body = {
        "metadata": model.metadata.model_dump(by_alias=True),
        "spec": model.spec.model_dump(by_alias=True, exclude_unset=True),
    }
    for path, value in values.items():
        part = body["spec"]
        for name in path[:-1]:
            part = part.setdefault(name, {})
        part[path[-1]] = value
    return SpeculativeModel.parse(body)
