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
# Tokens of an answer for which a prompt leaves room where only the prompt is set.
_ANSWER = 1024


def sized(
    model: SpeculativeModel,
    checkpoints: Mapping[str, Checkpoint],
    gpu_mib: int,
    ranks: RankPlan,
) -> SpeculativeModel:
    """The resource with all limits of the target; those that the spec sets stay.

    Where a size is not known or nothing fits, open limits follow from the defaults of the API and
    from the limits that are set. `gpu_mib` is 0 for a GPU that is not known.
    """
    given, most = _given(model), _positions(model, checkpoints)
    # With a set limit, less room than the formula wants is enough if one sequence fits.
    less = ((1, _SHARE), (1, 0)) if given else ()
    shares = ((_FULL, _SHARE), *less) if gpu_mib and not _complete(given) else ()
    for full, share in shares:
        for longest in _lengths(model, most):
            for batch in _batches(model):
                changed = _with(model, longest, batch)
                room = _room(changed, checkpoints, gpu_mib, ranks)
                if room >= max(full * longest, share * batch * min(_USUAL, longest)):
                    return changed
    return without_memory(model, most)


def without_memory(model: SpeculativeModel, most: int | None = None) -> SpeculativeModel:
    """The resource with the limits that hold where the memory is not known, or too small.

    Args:
        model: the resource.
        most: the longest sequence that the checkpoint allows, in tokens.
    """
    given, usual = _given(model), Limits()
    longest = max(usual.max_seq_len, given.get("max_input_len", 0) + _ANSWER)
    if most is not None and most > given.get("max_input_len", 1):
        longest = min(longest, most)
    if _complete(given) or (not given and longest == usual.max_seq_len):
        return model
    batch = min(usual.max_batch_size, given.get("max_num_tokens", _STEP))
    longest = given.get("max_seq_len", longest)
    return _with(model, longest, given.get("max_batch_size", batch))


def _complete(given: Mapping[str, int]) -> bool:
    return given.keys() == Limits.model_fields.keys()


def _given(model: SpeculativeModel) -> dict[str, int]:
    """The limits that the spec sets."""
    target = model.spec.target
    if "limits" not in target.model_fields_set:
        return {}
    return {name: getattr(target.limits, name) for name in target.limits.model_fields_set}


def _positions(model: SpeculativeModel, checkpoints: Mapping[str, Checkpoint]) -> int | None:
    """The longest sequence that target and draft allow, in tokens; None if it is not known."""
    positions = [
        checkpoint.facts.max_position
        for role, checkpoint in checkpoints.items()
        if role in ("target", "draft")
    ]
    known = [number for number in positions if number is not None]
    if not known or len(known) < len(positions):
        return None
    return min(known) - methods.of(model).positions_beyond(model)


def _lengths(model: SpeculativeModel, most: int | None) -> Iterator[int]:
    """Sequence lengths from the longest, each half of the one before; none if not known.

    A length that the spec sets is the only one. Others leave room for an answer to the longest
    prompt.
    """
    given = _given(model)
    if "max_seq_len" in given:
        yield given["max_seq_len"]
        return
    if most is None:
        return
    length = min(most, _LONGEST)
    if (prompt := given.get("max_input_len", 0)) >= length:
        length = min(most, prompt + _ANSWER)
    while length >= min(_SHORTEST, most) and length > max(1, prompt):
        yield length
        length //= 2


def _batches(model: SpeculativeModel) -> Iterator[int]:
    """Batch sizes from the largest, each half of the one before; only the one that is set."""
    given = _given(model)
    if "max_batch_size" in given:
        yield given["max_batch_size"]
        return
    batch = _LARGEST_BATCH
    while batch > 1 and batch * _step(model) > given.get("max_num_tokens", _STEP * batch):
        batch //= 2
    while batch:
        yield batch
        batch //= 2


def _step(model: SpeculativeModel) -> int:
    """Tokens of one sequence in a step that verifies its draft tokens."""
    return 1 + methods.of(model).max_draft_len(model)


def _with(model: SpeculativeModel, longest: int, batch: int) -> SpeculativeModel:
    """The resource with limits for sequences of a length in batches of a size.

    An eighth of the longest sequence is left for the answer. Without chunked context, a prompt has
    to fit into one step.
    """
    given = _given(model)
    prompt = max(longest - max(longest // 8, 1), 1)
    tokens = max(_STEP, batch * _step(model))
    if not model.spec.runtime.chunked_context:
        prompt = min(prompt, given.get("max_num_tokens", _STEP))
        tokens = max(tokens, given.get("max_input_len", 0))
    values = {
        "max_batch_size": batch,
        "max_input_len": prompt,
        "max_seq_len": longest,
        "max_num_tokens": tokens,
    }
    limits = Limits(**{**values, **given})
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
