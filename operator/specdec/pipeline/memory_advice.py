"""Changes of a resource that make its models fit: each was planned before a message names it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from specdec import validation
from specdec.api.gpus import products
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Images
from specdec.backends.finding import CheckpointFacts
from specdec.validation import compatibility

# GPUs of one pod: common nodes have no more.
_GPUS = 8
# No message advises limits below these: such a service would be of little use.
_LEAST_TOKENS = 512
_PLACES = {"target": ("target",), "draft": ("speculation", "draftTarget", "draft")}
_Body = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """One change: how a message asks for it, and the resource after it."""

    text: str
    model: SpeculativeModel


def alternatives(
    model: SpeculativeModel,
    facts: Mapping[str, CheckpointFacts],
    images: Images,
    fits: Callable[[SpeculativeModel], bool],
) -> list[str]:
    """What to change, as parts of a sentence; always at least one.

    Args:
        model: a resource that does not fit.
        facts: of its checkpoints, by role.
        images: of the release.
        fits: whether the memory plan of a changed resource fits.
    """
    texts = []
    for changes in (_splits(model), _products(model), _limits(model)):
        usable = (c for c in changes if _accepted(c.model, facts, images) and fits(c.model))
        if (change := next(usable, None)) is not None:
            texts.append(change.text)
    return texts or ["choose a smaller model, or a checkpoint that is quantized"]


def sentence(texts: list[str]) -> str:
    """Alternatives as the end of a sentence, as in "a, b, or c"."""
    *first, last = texts
    return f"{', '.join(first)}, or {last}" if first else last


def _accepted(
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
