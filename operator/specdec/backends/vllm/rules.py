"""Rules on specs of backend VLLM."""

from specdec import servers
from specdec.api.cause import Cause
from specdec.api.model import SpeculativeModel
from specdec.backends import draft_lengths
from specdec.backends.facts import Images
from specdec.backends.rule import Rule, invalid
from specdec.backends.vllm import methods


def in_triton(model: SpeculativeModel) -> bool:
    """Whether Triton runs vLLM."""
    return servers.of(model).serving.tritonserver


def steps(model: SpeculativeModel, _: Images) -> Cause | None:
    """Without chunked context, the longest sequence fits into one step.

    vLLM does not start otherwise: a request that it pauses is computed again as one prompt.
    """
    limits = model.spec.target.limits
    if model.spec.runtime.chunked_context or limits.max_seq_len <= limits.max_num_tokens:
        return None
    return invalid(
        f"limits.maxSeqLen of the target is {limits.max_seq_len}, above maxNumTokens "
        f"{limits.max_num_tokens}, and such a sequence does not fit into one step: raise "
        "maxNumTokens, or set runtime.chunkedContext to true"
    )


def slots(model: SpeculativeModel, _: Images) -> Cause | None:
    """A step has room for tokens beside those of drafts."""
    limits, each = model.spec.target.limits, methods.of(model).slots(model)
    taken = each * limits.max_batch_size
    if taken < limits.max_num_tokens:
        return None
    return invalid(
        f"limits.maxNumTokens of the target is {limits.max_num_tokens}, and drafts of "
        f"maxBatchSize {limits.max_batch_size} take {taken} of them in each step: raise "
        "maxNumTokens, or lower maxBatchSize"
    )


def warnings(model: SpeculativeModel) -> tuple[str, ...]:
    """Warnings about a valid spec."""
    return methods.of(model).warnings(model)


RULES: tuple[Rule, ...] = (steps, draft_lengths.required, slots, draft_lengths.by_load)
