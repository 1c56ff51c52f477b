"""Rules on specs of backend VLLM."""

from specdec import servers
from specdec.api.cause import Cause
from specdec.api.model import SpeculativeModel
from specdec.backends import draft_lengths, shared_texts
from specdec.backends.facts import Images
from specdec.backends.rule import Rule, invalid
from specdec.backends.vllm import arguments, limits, methods


def in_triton(model: SpeculativeModel) -> bool:
    """Whether Triton runs vLLM."""
    return servers.of(model).serving.tritonserver


def steps(model: SpeculativeModel, _: Images) -> Cause | None:
    """Without chunked context, the longest sequence fits into one step.

    vLLM computes a request that it paused as one prompt. It does not start where a step is too
    short, and with drafts it never computes such a request.
    """
    own = limits.without_memory(model).spec.target.limits
    taken = _taken(model)
    if limits.splits_prompts(model) or own.max_seq_len <= own.max_num_tokens - taken:
        return None
    less = f" without the {taken} of drafts" if taken else ""
    return invalid(
        f"limits.maxSeqLen of the target is {own.max_seq_len}, above maxNumTokens "
        f"{own.max_num_tokens}{less}, and such a sequence does not fit into one step: raise "
        "maxNumTokens, or set runtime.chunkedContext to true"
    )


def slots(model: SpeculativeModel, _: Images) -> Cause | None:
    """A step has room for tokens beside those of drafts."""
    own, taken = limits.without_memory(model).spec.target.limits, _taken(model)
    if taken < own.max_num_tokens:
        return None
    return invalid(
        f"limits.maxNumTokens of the target is {own.max_num_tokens}, and drafts of "
        f"maxBatchSize {own.max_batch_size} take {taken} of them in each step: raise "
        "maxNumTokens, or lower maxBatchSize"
    )


def _taken(model: SpeculativeModel) -> int:
    """Tokens of a step that a full batch takes for its drafts."""
    batch = limits.without_memory(model).spec.target.limits.max_batch_size
    return methods.of(model).slots(model) * batch


def warnings(model: SpeculativeModel) -> tuple[str, ...]:
    """Warnings about a valid spec."""
    return (*shared_texts.warnings(model), *methods.of(model).warnings(model))


RULES: tuple[Rule, ...] = (
    arguments.checked,
    slots,
    steps,
    draft_lengths.required,
    draft_lengths.by_load,
)
