"""Method DraftTarget: a draft model beside the target, in the same processes."""

from typing import Any

from typing_extensions import override

from specdec.api.cause import Cause
from specdec.api.model import SpeculativeModel
from specdec.api.versions import at_least
from specdec.backends.facts import Images
from specdec.backends.rule import invalid, version
from specdec.backends.vllm.methods.definition import VllmMethod

# The first version that maps tokens between two vocabularies.
_MAPS = "0.27.1"


def mapping(model: SpeculativeModel, _: Images) -> Cause | None:
    """The version can map tokens between two vocabularies."""
    release = version(model)
    if not METHOD.maps_vocabulary(model) or at_least(release, _MAPS):
        return None
    return invalid(
        f"spec.speculation.draftTarget.heterogeneousVocabulary is true, and vLLM {release} needs "
        f"a draft with the target's vocabulary: set it to false, or runtime.version to {_MAPS}"
    )


class DraftTargetMethod(VllmMethod):
    """Both models have the same GPUs and the same tensor parallelism."""

    spelling = "draft_model"
    rules = (mapping,)
    needs_block = True
    drafts_with = "draft"

    @override
    def missing_block(self, block: str) -> str:
        return f"set spec.speculation.{block}.draft and maxDraftTokens"

    @override
    def equal_vocabulary(self, model: SpeculativeModel) -> bool:
        return not self.maps_vocabulary(model)

    @override
    def maps_vocabulary(self, model: SpeculativeModel) -> bool:
        own = model.spec.speculation.draft_target
        return own is not None and own.heterogeneous_vocabulary

    @override
    def settings(self, model: SpeculativeModel) -> dict[str, Any]:
        return {"use_heterogeneous_vocab": True} if self.maps_vocabulary(model) else {}

    @override
    def slots(self, model: SpeculativeModel) -> int:
        return 1


METHOD = DraftTargetMethod()
