"""Limits that a resource does not set: they follow from the checkpoint and from the GPU's memory.

This is for backends that build nothing, so limits cost nothing but memory. docs/memory.md has the
formula.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from specdec.api.model import Limits, SpeculativeModel
from specdec.backends.facts import Checkpoint
from specdec.backends.memory_plan import Budget, plan
from specdec.backends.methods.definition import MethodDefinition
from specdec.backends.protocol import Backend

# Tokens of a step: the default of TensorRT-LLM's LLM API.
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


@dataclass(frozen=True)
class Steps:
    """What a step of an engine holds.

    Attributes:
        slots: tokens of each request that its draft takes beside those that are computed.
        whole: without chunked context, a step has room for the longest sequence, and not only for
            the longest prompt.
    """

    slots: int = 0
    whole: bool = False

    def holds(self, model: SpeculativeModel, longest: int, batch: int) -> bool:
        """Whether a number of tokens that the spec sets is enough for sequences of a length."""
        tokens = _given(model).get("max_num_tokens")
        if tokens is None or not self.whole or model.spec.runtime.chunked_context:
            return True
        return longest <= tokens - self.slots * batch


_PLAIN = Steps()


def sized(
    model: SpeculativeModel,
    checkpoints: Mapping[str, Checkpoint],
    gpu_mib: int,
    backend: Backend,
    steps: Steps = _PLAIN,
) -> SpeculativeModel:
    """The resource with all limits of the target; those that the spec sets stay.

    Where a size is not known or nothing fits, open limits follow from the defaults of the API and
    from the limits that are set.

    Args:
        model: the resource.
        checkpoints: by role.
        gpu_mib: memory of each GPU of the target in MiB; 0 for a GPU that is not known.
        backend: the resource's backend.
        steps: of its engine.
    """
    method = backend.method(model)
    given, most = _given(model), _positions(model, checkpoints, method)
    # With a set limit, less room than the formula wants is enough if one sequence fits.
    less = ((1, _SHARE), (1, 0)) if given else ()
    shares = ((_FULL, _SHARE), *less) if gpu_mib and not _complete(given) else ()
    for full, share in shares:
        for longest in _lengths(model, most):
            for batch in _batches(model, method):
                if not steps.holds(model, longest, batch):
                    continue
                changed = _with(model, longest, batch, method, steps)
                room = _room(changed, checkpoints, gpu_mib, backend)
                if room >= max(full * longest, share * batch * min(_USUAL, longest)):
                    return changed
    return without_memory(model, method, most, steps)


def without_memory(
    model: SpeculativeModel,
    method: MethodDefinition,
    most: int | None = None,
    steps: Steps = _PLAIN,
) -> SpeculativeModel:
    """The resource with the limits that hold where the memory is not known, or too small.

    Args:
        model: the resource.
        method: the definition of its method.
        most: the longest sequence that the checkpoint allows, in tokens.
        steps: of its engine.
    """
    given, usual = _given(model), Limits()
    longest = max(usual.max_seq_len, given.get("max_input_len", 0) + _ANSWER)
    if most is not None and most > given.get("max_input_len", 1):
        longest = min(longest, most)
    if _complete(given) or (not given and longest == usual.max_seq_len):
        return model
    batch = min(usual.max_batch_size, given.get("max_num_tokens", _STEP))
    batch = given.get("max_batch_size", batch)
    while longest > 1 and not steps.holds(model, longest, batch):
        longest //= 2
    longest = given.get("max_seq_len", longest)
    return _with(model, longest, batch, method, steps)


def _complete(given: Mapping[str, int]) -> bool:
    return given.keys() == Limits.model_fields.keys()


def _given(model: SpeculativeModel) -> dict[str, int]:
    """The limits that the spec sets."""
    target = model.spec.target
    if "limits" not in target.model_fields_set:
        return {}
    return {name: getattr(target.limits, name) for name in target.limits.model_fields_set}


def _positions(
    model: SpeculativeModel, checkpoints: Mapping[str, Checkpoint], method: MethodDefinition
) -> int | None:
    """The longest sequence that target and draft allow, in tokens; None if it is not known."""
    positions = [
        checkpoint.facts.max_position
        for role, checkpoint in checkpoints.items()
        if role in ("target", "draft")
    ]
    known = [number for number in positions if number is not None]
    if not known or len(known) < len(positions):
        return None
    return min(known) - method.positions_beyond(model)


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


def _batches(model: SpeculativeModel, method: MethodDefinition) -> Iterator[int]:
    """Batch sizes from the largest, each half of the one before; only the one that is set."""
    given = _given(model)
    if "max_batch_size" in given:
        yield given["max_batch_size"]
        return
    batch = _LARGEST_BATCH
    while batch > 1 and batch * _step(model, method) > given.get("max_num_tokens", _STEP * batch):
        batch //= 2
    while batch:
        yield batch
        batch //= 2


def _step(model: SpeculativeModel, method: MethodDefinition) -> int:
    """Tokens of one sequence in a step that verifies its draft tokens."""
    return 1 + method.max_draft_len(model)


def _with(
    model: SpeculativeModel, longest: int, batch: int, method: MethodDefinition, steps: Steps
) -> SpeculativeModel:
    """The resource with limits for sequences of a length in batches of a size.

    An eighth of the longest sequence is left for the answer. Without chunked context, a prompt has
    to fit into one step.
    """
    given = _given(model)
    prompt = max(longest - max(longest // 8, 1), 1)
    computed = _STEP
    if not model.spec.runtime.chunked_context:
        computed = max(_STEP, longest if steps.whole else given.get("max_input_len", 0))
        prompt = min(prompt, given.get("max_num_tokens", computed if steps.whole else _STEP))
    tokens = max(computed + steps.slots * batch, batch * _step(model, method))
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
    backend: Backend,
) -> int:
    """Tokens of the cache; 0 if a size is not known, or if nothing fits."""
    needs = backend.memory(model, checkpoints) if backend.memory else {}
    if "target" not in needs:
        return 0
    own = model.spec.target.kv_cache
    budgets = {"target": Budget(own.max_tokens, own.memory_percent)}
    uncapped = {"target": replace(needs["target"], reuses_blocks=True)}
    planned = plan(gpu_mib, backend.servers(model), uncapped, budgets)
    return planned.kv_tokens["target"] if planned.fits else 0
