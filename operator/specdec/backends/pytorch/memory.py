"""The memory that the LLM API needs on each GPU: target, draft and heads are in one process."""

from collections.abc import Mapping
from dataclasses import replace

from specdec.api.model import SpeculativeModel
from specdec.backends import one_process
from specdec.backends.checkpoint_sizes import is_mixture
from specdec.backends.facts import Checkpoint
from specdec.backends.footprint import DraftMemory, EngineSizes, Footprint, footprint
from specdec.backends.pytorch import methods


def footprints(
    model: SpeculativeModel, checkpoints: Mapping[str, Checkpoint]
) -> dict[str, Footprint]:
    """The footprint of the one process, under the role of the target; empty if not known.

    A token of the cache has the keys and values of target, heads and draft.
    """
    engines = {
        role: _engine(model, role, checkpoints)
        for role in ("target", "draft")
        if role in checkpoints
    }
    if any(engine is None for engine in engines.values()) or "target" not in engines:
        return {}
    parts = {role: footprint(engine) for role, engine in engines.items() if engine is not None}
    target, draft = parts["target"], parts.get("draft")
    target = replace(target, reuses_blocks=model.spec.target.kv_cache.reuse)
    more = _of_heads(model, checkpoints, engines["target"])
    if more is None:
        return {}
    together, rate = target.parts | dict(more.parts), target.kv_per_token + more.kv_per_token
    if draft is not None:
        together |= {f"Draft{name}": size for name, size in draft.parts.items()}
        rate += draft.kv_per_token
    return {"target": replace(target, parts=together, kv_per_token=rate)}


def _of_heads(
    model: SpeculativeModel, checkpoints: Mapping[str, Checkpoint], target: EngineSizes | None
) -> DraftMemory | None:
    if target is None or "heads" not in checkpoints:
        return DraftMemory()
    return methods.of(model).draft_memory(model, checkpoints["heads"], target)


def _engine(
    model: SpeculativeModel, role: str, checkpoints: Mapping[str, Checkpoint]
) -> EngineSizes | None:
    checkpoint = checkpoints[role]
    sizes = one_process.sizes(checkpoint)
    if sizes is None:
        return None
    method, is_target = methods.of(model), role == "target"
    shares = method.splits_attention(model)
    if not shares and is_mixture(checkpoint) and not sizes.routed:
        return None
    heads = checkpoints.get("heads") if is_target else None
    return replace(
        one_process.engine(model, checkpoint, sizes),
        draft_len=method.max_draft_len(model),
        head_bytes=heads.bytes if heads else 0,
        head_layers=method.head_cache_layers if is_target else 0,
        attention_data=not shares,
    )
