"""The interface of a method. Its defaults are those of a target that decodes alone."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from specdec.api.checkpoint_facts import CheckpointFacts
from specdec.api.model import SpeculativeModel
from specdec.backends.finding import Finding
from specdec.backends.rule import Rule
from specdec.triton.layout import Layout, Server, Split
from specdec.triton.plan import ModelPlan, Parameters, RepositoryPlan

# How `trtllm-build` calls an engine without speculation.
PLAIN = "none"


class MethodDefinition:
    """A method of speculative decoding.

    Attributes:
        rules: rules on a spec with this method, in the order they are checked.
        needs_block: whether the spec must have the method's block of settings.
        build_mode: the method's name for `trtllm-build`, which builds it into the target's engine.
        resends_sequence: whether every round sends the whole sequence so far as a new prompt.
        head_cache_layers: layers of draft heads that keep keys and values on the target.
        in_target_process: whether a draft model runs in the target's processes, with its
            parallelism.
    """

    rules: ClassVar[tuple[Rule, ...]] = ()
    needs_block: ClassVar[bool] = False
    build_mode: ClassVar[str] = PLAIN
    resends_sequence: ClassVar[bool] = False
    head_cache_layers: ClassVar[int] = 0
    in_target_process: ClassVar[bool] = False

    def splits_attention(self, model: SpeculativeModel) -> bool:
        """Whether tensor parallelism divides the attention heads between ranks."""
        del model
        return True

    def equal_vocabulary(self, model: SpeculativeModel) -> bool:
        """Whether a draft must have exactly as many vocabulary entries as the target."""
        del model
        return False

    def maps_vocabulary(self, model: SpeculativeModel) -> bool:
        """Whether the server translates tokens between the tokenizers of draft and target."""
        del model
        return False

    def missing_block(self, block: str) -> str:
        """The resolution for a spec without the method's block."""
        return f"set the block {block}"

    def max_draft_len(self, model: SpeculativeModel) -> int:
        """The draft length (tokens) that the target's engine is built for."""
        del model
        return 0

    def positions_beyond(self, model: SpeculativeModel) -> int:
        """How many positions past the end of the longest sequence a step may compute, in tokens.

        The engine drafts up to the end of an answer, and past it.
        """
        return self.max_draft_len(model)

    def draft_tokens(self, model: SpeculativeModel) -> int | None:
        """The server's default draft length (tokens); None where no request can set a length."""
        del model
        return None

    def built_in(self, model: SpeculativeModel) -> dict[str, Any]:
        """Settings of the block that change the engine's bytes, for the target's build plan."""
        del model
        return {}

    def layout(self, model: SpeculativeModel, splits: Mapping[str, Split]) -> Layout:
        """Where the models run; `splits` is by role."""
        return Layout(splits["target"], nodes=model.spec.serving.nodes_per_replica)

    def parameters(self, model: SpeculativeModel) -> Parameters:
        """Keys that the method sets in `config.pbtxt` of the target's engine."""
        del model
        return ()

    def configured(
        self,
        plan: RepositoryPlan,
        model: SpeculativeModel,
        server: Server,
        engines: Mapping[str, ModelPlan],
    ) -> RepositoryPlan:
        """The repository plan of a target alone, extended by the method; `engines` is by role."""
        del model, server, engines
        return plan

    def findings(
        self, model: SpeculativeModel, facts: Mapping[str, CheckpointFacts]
    ) -> Iterator[Finding]:
        """The mismatches between the target and the method's own checkpoints."""
        del model, facts
        yield from ()
