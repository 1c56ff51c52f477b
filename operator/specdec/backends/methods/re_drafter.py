"""Method ReDrafter: a recurrent drafter on the target searches with beams."""

from collections.abc import Iterator, Mapping
from typing import Any

from typing_extensions import override

from specdec.api.cause import Cause
from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.api.model import SpeculativeModel
from specdec.api.versions import at_least
from specdec.backends.facts import Images
from specdec.backends.finding import Finding
from specdec.backends.methods import heads
from specdec.backends.methods.definition import MethodDefinition
from specdec.backends.rule import invalid, version
from specdec.triton.plan import Parameters

# From release `ANY_BASE` on, the converter accepts any base model. Older converters read the base
# model themselves, and support only the class `_LLAMA` without quantization.
ANY_BASE, _LLAMA = "1.0.0", "LlamaForCausalLM"
_BUILT_IN = {"num_beams", "draft_len_per_beam", "greedy_search"}


def quantization(model: SpeculativeModel, _: Images) -> Cause | None:
    """The converter of the release can quantize, if the spec requests quantization."""
    field, release = heads.quantized(model), version(model)
    if not field or at_least(release, ANY_BASE):
        return None
    return invalid(
        f"{field}, and the ReDrafter converter of {release} quantizes nothing: remove "
        f"quantization, or set runtime.version to {ANY_BASE} or newer"
    )


class ReDrafterMethod(MethodDefinition):
    """The draft length follows from the beams, and is built into the engine."""

    rules = (quantization,)
    needs_block = True
    build_mode = "explicit_draft_tokens"

    @override
    def max_draft_len(self, model: SpeculativeModel) -> int:
        """The drafter offers every token of every beam."""
        own = model.spec.speculation.re_drafter
        return own.num_beams * own.draft_len_per_beam if own else 0

    @override
    def built_in(self, model: SpeculativeModel) -> dict[str, Any]:
        own = model.spec.speculation.re_drafter
        return {"reDrafter": own.model_dump(by_alias=True, include=_BUILT_IN)} if own else {}

    @override
    def parameters(self, model: SpeculativeModel) -> Parameters:
        del model
        return (("decoding_mode", "redrafter"),)

    @override
    def findings(
        self, model: SpeculativeModel, facts: Mapping[str, CheckpointFacts]
    ) -> Iterator[Finding]:
        able = heads.architectures(model)
        if not at_least(version(model), ANY_BASE):
            able = tuple(name for name in able if name == _LLAMA)
        yield from heads.fit(model, facts, able).findings


METHOD = ReDrafterMethod()
