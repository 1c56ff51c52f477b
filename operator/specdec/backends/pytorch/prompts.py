"""Rules on the prompts that the LLM API accepts."""

from specdec.api.cause import Cause
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Images
from specdec.backends.open_limits import without_memory
from specdec.backends.pytorch import methods
from specdec.backends.rule import invalid


def steps(model: SpeculativeModel, _: Images) -> Cause | None:
    """Without chunked context, the longest prompt fits into one step.

    The LLM API loads such a model, and then refuses each longer prompt: "The sum of prompt length
    (9000), query length (0) should not exceed max_num_tokens (8192)".
    """
    limits = without_memory(model, methods.of(model)).spec.target.limits
    if model.spec.runtime.chunked_context or limits.max_input_len <= limits.max_num_tokens:
        return None
    return invalid(
        f"limits.maxInputLen of the target is {limits.max_input_len}, above maxNumTokens "
        f"{limits.max_num_tokens}, and such a prompt does not fit into one step: raise "
        "maxNumTokens, or set runtime.chunkedContext to true"
    )
