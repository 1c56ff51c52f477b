"""Whether the attention heads of fetched checkpoints can be split over the GPUs of the spec."""

from collections.abc import Iterator, Mapping

from specdec import backends
from specdec.api.checkpoint_facts import NO_FACTS, CheckpointFacts
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import CompatibilityReason
from specdec.backends.finding import Finding

# GPUs of the largest split that an advice lists.
_MOST = 64


def tensor(model: SpeculativeModel, role: str) -> int:
    """The tensor parallelism of a role; a model in the target's processes has the target's."""
    target = model.spec.target
    own = target if backends.method(model).in_target_process else model.models.get(role, target)
    return own.parallelism.tensor


def findings(model: SpeculativeModel, facts: Mapping[str, CheckpointFacts]) -> Iterator[Finding]:
    """Findings about `parallelism.tensor`; no check weakens them, because no server would load.

    TensorRT-LLM asserts that it divides the attention heads. Key/value heads are divided too, or
    each is copied to the same number of ranks. Latent attention (`cacheWidth`) has no key/value
    heads to divide.
    """
    if not backends.method(model).splits_attention(model):
        return
    for role in ("target", "draft", "heads"):
        own = facts.get(role, NO_FACTS)
        heads, split = own.heads, tensor(model, role)
        if heads is None:
            continue
        kv_heads = heads if own.cache_width else own.kv_heads or heads
        if fits(split, heads, kv_heads):
            continue
        able = [str(n) for n in range(1, min(heads, _MOST) + 1) if fits(n, heads, kv_heads)]
        yield Finding(
            CompatibilityReason.HEADS_NOT_DIVISIBLE,
            f"parallelism.tensor {split} cannot split the {role}, which has {heads} attention "
            f"heads and {kv_heads} key/value heads: set it to one of {', '.join(able)}",
            "",
            role,
        )


def fits(split: int, heads: int, kv_heads: int) -> bool:
    """Whether ranks can share the heads of a model."""
    return heads % split == 0 and (kv_heads % split == 0 or split % kv_heads == 0)
