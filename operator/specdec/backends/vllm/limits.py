"""Limits that a resource does not set, as for every backend that builds nothing."""

from collections.abc import Mapping

from specdec.api.model import SpeculativeModel
from specdec.backends import open_limits
from specdec.backends.facts import Checkpoint
from specdec.backends.open_limits import Steps
from specdec.backends.protocol import Backend
from specdec.backends.vllm import methods


def sized(
    model: SpeculativeModel, checkpoints: Mapping[str, Checkpoint], gpu_mib: int, backend: Backend
) -> SpeculativeModel:
    """The resource with all limits of the target."""
    return _prompts(open_limits.sized(model, checkpoints, gpu_mib, backend, _steps(model)))


def without_memory(model: SpeculativeModel) -> SpeculativeModel:
    """The resource with the limits that hold where the memory is not known."""
    method = methods.of(model)
    return _prompts(open_limits.without_memory(model, method, steps=_steps(model)))


def splits_prompts(model: SpeculativeModel) -> bool:
    """Whether a prompt may take several steps; it may unless the spec forbids it."""
    return model.spec.runtime.chunked_context is not False


def _steps(model: SpeculativeModel) -> Steps:
    """Without chunked context, vLLM computes a sequence that it paused as one prompt."""
    return Steps(methods.of(model).slots(model), whole=not splits_prompts(model))


def _prompts(model: SpeculativeModel) -> SpeculativeModel:
    """vLLM limits no prompt by itself: the longest one leaves room for a token of the answer."""
    target = model.spec.target
    longest = max(target.limits.max_seq_len - 1, 1)
    limits = target.limits.model_copy(update={"max_input_len": longest})
    target = target.model_copy(update={"limits": limits})
    return model.model_copy(update={"spec": model.spec.model_copy(update={"target": target})})
