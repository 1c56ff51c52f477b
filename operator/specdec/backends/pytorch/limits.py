"""Limits that a resource does not set: they follow from the checkpoint and from the GPU's memory.

Nothing is built, so the limits cost nothing but memory. docs/memory.md has the formula.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from specdec.api.model import Limits, SpeculativeModel
from specdec.backends.facts import Checkpoint
from specdec.backends.memory_plan import Budget, plan
from specdec.backends.pytorch import memory, methods
from specdec.triton.layout import RankPlan

# Tokens of a step: the default of the LLM API.
_STEP = 8192
_LONGEST = 32768
_SHORTEST = 2048
# The cache holds this many sequences of full length.
_FULL = 4
# Tokens of a usual request, and the largest batch. Half of the cache is left for longer requests
# and for blocks of earlier prompts.
_USUAL = 2048
_LARGEST_BATCH = 256
_SHARE = 2


def sized(
    model: SpeculativeModel,
    checkpoints: Mapping[str, Checkpoint],
    gpu_mib: int,
    ranks: RankPlan,
) -> SpeculativeModel:
    """The resource with all limits of the target.

    It is unchanged if the spec has limits, if a size is not known, or if nothing fits.
    """
    if "limits" in model.spec.target.model_fields_set:
        return model
    positions = [
        checkpoint.facts.get("maxPosition")
        for role, checkpoint in checkpoints.items()
        if role in ("target", "draft")
    ]
    known = [number for number in positions if isinstance(number, int)]
    if not known or len(known) < len(positions):
        return model
    most = min(known) - methods.of(model).positions_beyond(model)
    for longest in _lengths(most):
        for batch in _batches():
            changed = _with(model, longest, batch)
            room = _room(changed, checkpoints, gpu_mib, ranks)
            if room >= max(_FULL * longest, _SHARE * batch * min(_USUAL, longest)):
                return changed
    return model


def _lengths(most: int) -> Iterator[int]:
    """Sequence lengths from the longest, each half of the one before."""
    length = min(most, _LONGEST)
    while length >= min(_SHORTEST, most) and length > 1:
        yield length
        length //= 2


def _batches() -> Iterator[int]:
    """Batch sizes from the largest, each half of the one before."""
    batch = _LARGEST_BATCH
    while batch:
        yield batch
        batch //= 2


def _with(model: SpeculativeModel, longest: int, batch: int) -> SpeculativeModel:
    """The resource with limits for sequences of a length in batches of a size.

    An eighth of the longest sequence is left for the answer. Without chunked context, a prompt has
    to fit into one step.
    """
    prompt = max(longest - max(longest // 8, 1), 1)
    if not model.spec.runtime.chunked_context:
        prompt = min(prompt, _STEP)
    limits = Limits(
        max_batch_size=batch,
        max_input_len=prompt,
        max_seq_len=longest,
        max_num_tokens=max(_STEP, batch * (1 + methods.of(model).max_draft_len(model))),
    )
    target = model.spec.target.model_copy(update={"limits": limits})
    return model.model_copy(update={"spec": model.spec.model_copy(update={"target": target})})


def _room(
    model: SpeculativeModel,
    checkpoints: Mapping[str, Checkpoint],
    gpu_mib: int,
    ranks: RankPlan,
) -> int:
    """Tokens of the cache; 0 if a size is not known, or if nothing fits."""
    needs = memory.footprints(model, checkpoints)
    if "target" not in needs:
        return 0
    own = model.spec.target.kv_cache
    budgets = {"target": Budget(own.max_tokens, own.memory_percent)}
    uncapped = {"target": replace(needs["target"], reuses_blocks=True)}
    planned = plan(gpu_mib, ranks, uncapped, budgets)
    return planned.kv_tokens["target"] if planned.fits else 0
