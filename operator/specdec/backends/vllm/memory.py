"""The memory that vLLM needs on each GPU: target, draft and heads are in one process for each.

The size of the cache is exact: vLLM divides `kv_cache_memory_bytes` by the bytes of a token in all
layers with a cache (`get_kv_cache_configs` in vllm/v1/core/kv_cache_utils.py). The other parts are
estimates; docs/memory.md has each with its reason.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.api.model import SpeculativeModel
from specdec.backends import one_process
from specdec.backends.facts import Checkpoint
from specdec.backends.footprint import DraftMemory, EngineSizes, Footprint, footprint
from specdec.backends.methods.definition import MethodDefinition

# Larger than any draft's numbers: a damaged configuration must not reach the arithmetic.
_MOST = 10**6
# VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE in vllm/envs.py: a buffer of FlashInfer's attention.
_WORKSPACE = 394 << 20
# vLLM records up to 51 sizes of a batch (`cudagraph_capture_sizes`), of the target and of the
# draft. No source states their bytes, so these are estimates (docs/gpu-unknowns.md).
_GRAPHS = 1 << 30
_DRAFT_GRAPHS = 512 << 20
# `enforce_eager` of `spec.runtime.arguments`: no graph is recorded.
_EAGER = "enforce_eager"
# Bytes of each logit while the sampler sorts (vllm/v1/sample/ops/topk_topp_sampler.py): logits,
# probabilities and sorted values in FP32, and 64-bit indices.
_LOGIT = 4 + 4 + 4 + 8
# Layers of the target that EAGLE-3 heads read, where their configuration names none.
_READ_LAYERS = 3


def footprints(
    model: SpeculativeModel, checkpoints: Mapping[str, Checkpoint], method: MethodDefinition
) -> dict[str, Footprint]:
    """The footprint of a process, under the role of the target; empty if a size is not known.

    A token of the cache has the keys and values of target, heads and draft. Their steps take
    turns, so their activations share memory.
    """
    engines = {
        role: _engine(model, checkpoints[role], method, role)
        for role in ("target", "draft")
        if role in checkpoints
    }
    target, draft = engines.get("target"), engines.get("draft")
    if target is None or any(engine is None for engine in engines.values()):
        return {}
    heads = _heads(checkpoints, target, method)
    if heads is None:
        return {}
    own = footprint(target)
    parts = own.parts | {"Weights": _weights(target), "Logits": _logits(target)}
    rate = own.kv_per_token + heads.kv_per_token
    if draft is not None:
        other = footprint(draft)
        parts |= {"DraftWeights": _weights(draft), "DraftLogits": _logits(draft)}
        parts["Activations"] = max(parts["Activations"], other.parts["Activations"])
        rate += other.kv_per_token
    parts |= {**heads.parts, **_fixed(model, drafts=len(checkpoints) > 1)}
    reuses = model.spec.target.kv_cache.reuse
    return {"target": replace(own, parts=parts, kv_per_token=rate, reuses_blocks=reuses)}


def _fixed(model: SpeculativeModel, *, drafts: bool) -> dict[str, int]:
    """Bytes that do not depend on the sizes of a model."""
    if model.spec.runtime.arguments.get(_EAGER) is True:
        return {"Workspace": _WORKSPACE}
    return {"Workspace": _WORKSPACE, "CudaGraphs": _GRAPHS + (_DRAFT_GRAPHS if drafts else 0)}


def _engine(
    model: SpeculativeModel, checkpoint: Checkpoint, method: MethodDefinition, role: str
) -> EngineSizes | None:
    sizes = one_process.sizes(checkpoint)
    if sizes is None:
        return None
    return replace(
        one_process.engine(model, checkpoint, sizes),
        draft_len=method.max_draft_len(model),
        # Layers of the target's own checkpoint that draft have its keys and values.
        head_layers=checkpoint.facts.next_token_layers or 0
        if role == "target" and method.head_cache_layers
        else 0,
    )


def _heads(
    checkpoints: Mapping[str, Checkpoint], target: EngineSizes, method: MethodDefinition
) -> DraftMemory | None:
    """The memory of heads; None if a size is not known.

    Each rank counts the whole file: vLLM divides most of it, and no configuration states how much.
    """
    if "heads" not in checkpoints:
        return DraftMemory()
    heads = checkpoints["heads"]
    parts = {"Heads": heads.bytes}
    if not method.head_cache_layers:
        return DraftMemory(parts)
    layers, width = _layers(heads.facts, target)
    if not (0 < layers <= _MOST and 0 < width <= _MOST):
        return None
    read = heads.facts.captured_layers or _READ_LAYERS
    if read > _MOST:
        return None
    states = target.max_num_tokens * read * target.sizes.hidden * target.bytes_per_value
    rate = 2 * layers * width * target.bytes_per_kv_element
    return DraftMemory({**parts, "HiddenStates": states}, rate)


def _layers(facts: CheckpointFacts, target: EngineSizes) -> tuple[int, int]:
    """Layers of heads with a cache, and elements of a token's keys in one of them on a rank.

    Heads have layers and key/value heads of their own. Where their configuration states none, they
    are one layer like those of the target.
    """
    heads = facts.kv_heads or facts.heads or target.sizes.kv_heads
    size = facts.head_dim or target.sizes.head_dim
    return facts.layers or 1, math.ceil(heads / target.tensor) * size


def _weights(engine: EngineSizes) -> int:
    """The weights of a rank: vLLM divides embedding and output projection too."""
    ranks, sizes = engine.tensor * engine.pipeline, engine.sizes
    # A stage of a pipeline has one of the two.
    ends = sizes.embedding * (1 if sizes.tied or engine.pipeline > 1 else 2) / engine.tensor
    body = sizes.body * engine.bytes_per_body_parameter / ranks
    return math.ceil(body + ends * engine.bytes_per_value)


def _logits(engine: EngineSizes) -> int:
    """Logits of a step, which each rank has for the whole vocabulary."""
    rows = engine.max_batch_size * (1 + engine.draft_len)
    return rows * engine.sizes.vocab * _LOGIT
