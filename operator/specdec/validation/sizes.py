"""Rules on sizes that contradict each other only at run time."""

from specdec.api.cause import Cause
from specdec.api.matrix import support
from specdec.api.model import Method, SpeculativeModel
from specdec.backends.facts import Images
from specdec.validation.rule import invalid

# `trtllm-build` asserts it for EAGLE.
_EAGLE_BATCH = 512
_SINK = "sink_token_length"


def steps(model: SpeculativeModel, _: Images) -> Cause | None:
    """A prompt that is not cut into parts goes through the engine in one step.

    The server takes prompts up to min(maxSeqLen - 1, maxNumTokens) then, and max_input_len counts
    no more; DraftTarget sends the sequence so far as the prompt of each round.
    """
    runtime = model.spec.runtime
    if support(runtime.backend).compute_capability is None or runtime.chunked_context:
        return None
    drafts = model.spec.speculation.method is Method.DRAFT_TARGET
    for role, spec in model.models.items():
        limits = spec.limits
        name, longest = (
            ("maxSeqLen", limits.max_seq_len) if drafts else ("maxInputLen", limits.max_input_len)
        )
        if longest > limits.max_num_tokens:
            return invalid(
                f"limits.{name} of the {role} is {longest}, above maxNumTokens "
                f"{limits.max_num_tokens}, and a longer prompt is not taken in one step: raise "
                "maxNumTokens, or set runtime.chunkedContext to true"
            )
    return None


def batch(model: SpeculativeModel, _: Images) -> Cause | None:
    """EAGLE's kernels have a ceiling of their own."""
    size = model.spec.target.limits.max_batch_size
    if model.spec.speculation.method is not Method.EAGLE or size <= _EAGLE_BATCH:
        return None
    return invalid(
        f"limits.maxBatchSize of the target is {size}, and Eagle is built for {_EAGLE_BATCH} at "
        f"most: set it to {_EAGLE_BATCH} or less"
    )


def sink(model: SpeculativeModel, _: Images) -> Cause | None:
    """Attention sinks need attention over a context that is not paged."""
    if _SINK not in model.spec.runtime.parameters:
        return None
    paged = [role for role, spec in model.models.items() if spec.engine.paged_context_fmha]
    if not paged:
        return None
    return invalid(
        f"spec.runtime.parameters has {_SINK}, and paged context attention of the {paged[0]} "
        "knows no sinks: remove it, or set engine.pagedContextFmha and kvCache.reuse to false"
    )
