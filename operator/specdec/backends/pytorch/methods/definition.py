"""The interface of a method that drafts inside the LLM API, and the parts that methods share."""

from typing import Any

from typing_extensions import override

from specdec.api.methods.llm_api import SuffixMatching
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint, Facts
from specdec.backends.footprint import DraftMemory, EngineSizes
from specdec.backends.methods.in_server import InServerMethod
from specdec.backends.pytorch.generations import Generation


class LlmApiMethod(InServerMethod):
    """A method of the LLM API."""

    @override
    def splits_attention(self, model: SpeculativeModel) -> bool:
        """Not with attention data parallelism, in which every rank has all heads."""
        return model.spec.runtime.arguments.get("enable_attention_dp") is not True

    def draft_memory(
        self, model: SpeculativeModel, draft: Checkpoint, target: EngineSizes
    ) -> DraftMemory | None:
        """The memory of heads beside their files; None if a size is not known."""
        del model, draft, target
        return DraftMemory()

    def settings(self, model: SpeculativeModel, generation: Generation) -> dict[str, Any]:
        """Keys of `speculative_config` that only this method has."""
        del model, generation
        return {}

    def speculative_config(
        self, model: SpeculativeModel, generation: Generation, facts: Facts
    ) -> dict[str, Any]:
        """`speculative_config` of `model.yaml`; empty for a target that decodes alone."""
        spelling = generation.methods.get(model.spec.speculation.method)
        if spelling is None:
            return {}
        path = facts.checkpoints[self.drafts_with].path if self.drafts_with else ""
        return {
            "decoding_type": spelling.type,
            spelling.length: self.max_draft_len(model),
            **({generation.draft_path: path} if path else {}),
            **spelling.fixed,
            **self.settings(model, generation),
            **_by_load(model),
            **_acceptance(model),
            **({"enable_penalty": True} if model.spec.speculation.penalties else {}),
        }


def suffix_matching(own: SuffixMatching | None) -> dict[str, Any]:
    """The keys of a suffix automaton beside trained heads."""
    if own is None:
        return {}
    return {"sa_config": {"threshold": own.threshold, "enable_global_pool": own.global_pool}}


def _by_load(model: SpeculativeModel) -> dict[str, Any]:
    own = model.spec.speculation.draft_length_by_load
    if own is None:
        return {}
    if own.max_concurrency is not None:
        return {"max_concurrency": own.max_concurrency}
    return {"draft_len_schedule": {s.batch_size: s.draft_tokens for s in own.schedule}}


def _acceptance(model: SpeculativeModel) -> dict[str, Any]:
    """Thresholds of acceptance.

    The threshold of a length counts accepted draft tokens: the tokens of a step without the one
    that the target adds.
    """
    length = model.spec.speculation.acceptance_threshold
    rate = model.spec.speculation.acceptance_rate_threshold
    values: dict[str, Any] = {}
    if length is not None:
        values["acceptance_window"] = length.window
        values["acceptance_length_threshold"] = (length.length_percent - 100) / 100
    if rate is not None:
        values["acceptance_rate_window_size"] = rate.window_steps
        values["acceptance_rate_threshold"] = rate.rate_percent / 100
    return values
