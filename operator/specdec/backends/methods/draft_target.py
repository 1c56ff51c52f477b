"""Method DraftTarget: a draft model proposes tokens, and the target verifies them."""

from collections.abc import Mapping
from dataclasses import replace

from typing_extensions import override

from specdec.api.cause import Cause
from specdec.api.methods.draft_target import DraftTarget
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Images
from specdec.backends.methods import lengths
from specdec.backends.methods.definition import MethodDefinition
from specdec.backends.rule import invalid
from specdec.triton.layout import Layout, Server, Split
from specdec.triton.plan import ModelPlan, RepositoryPlan

# Microseconds that a call waits in the engine's queue if one call cannot hold all sequences.
# Without this delay, the first call would begin a step without the others.
QUEUE_DELAY_US = 500


def ceiling(model: SpeculativeModel) -> int:
    """The longest draft (tokens) that a request may ask for."""
    own = block(model).draft_length_ceiling
    return lengths.built(model) if own is None else own


def default(model: SpeculativeModel) -> int:
    """The server's default draft length (tokens)."""
    return lengths.default(model, ceiling(model))


def block(model: SpeculativeModel) -> DraftTarget:
    """The method's block, which validation requires."""
    own = model.spec.speculation.draft_target
    if own is None:
        raise ValueError("spec.speculation.draftTarget is missing: validate the spec first")
    return own


def rows_fit(model: SpeculativeModel, _: Images) -> Cause | None:
    """rowsPerCall is at most a batch, and 1 where an engine sends one response a call."""
    field, rows = "spec.speculation.draftTarget.rowsPerCall", block(model).rows_per_call or 1
    batch = min(spec.limits.max_batch_size for spec in model.models.values())
    if rows > batch:
        return invalid(
            f"{field} is {rows}, above the smaller limits.maxBatchSize of target and draft, "
            f"{batch}: lower it, or raise maxBatchSize"
        )
    if rows > 1 and not model.spec.serving.streaming:
        return invalid(
            f"{field} is {rows}, but an engine takes one row a call unless it streams: set it to "
            "1, or serving.streaming to true"
        )
    return None


class DraftTargetMethod(MethodDefinition):
    """The BLS or the client runs the loop; the target's engine takes draft tokens from outside."""

    rules = (lengths.required, rows_fit)
    needs_block = True
    build_mode = "draft_tokens_external"
    # Every round is a new request, whose input is the whole sequence so far.
    resends_sequence = True

    @override
    def missing_block(self, block: str) -> str:
        return f"set {block}.draft and maxDraftTokens"

    @override
    def max_draft_len(self, model: SpeculativeModel) -> int:
        return lengths.built(model)

    @override
    def positions_beyond(self, model: SpeculativeModel) -> int:
        """Zero: the loop never drafts beyond the last token of an answer."""
        del model
        return 0

    @override
    def draft_tokens(self, model: SpeculativeModel) -> int:
        return default(model)

    @override
    def layout(self, model: SpeculativeModel, splits: Mapping[str, Split]) -> Layout:
        own = block(model)
        return replace(
            super().layout(model, splits),
            draft=splits["draft"],
            topology=own.topology,
            placement=own.gpu_placement,
            fast_logits=own.fast_logits,
        )

    @override
    def configured(
        self,
        plan: RepositoryPlan,
        model: SpeculativeModel,
        server: Server,
        engines: Mapping[str, ModelPlan],
    ) -> RepositoryPlan:
        """As `MethodDefinition.configured`: adds the draft's engine and the BLS's settings."""
        own = block(model)
        rows = _rows_per_call(own, plan)
        longest = ceiling(model)
        return replace(
            plan,
            draft=engines["draft"],
            draft_tokens=default(model),
            max_draft_tokens=longest,
            adaptive=lengths.adaptive(model, longest),
            lookup_min_match=own.lookup.min_match if own.lookup else 0,
            lookup_memory_megabytes=own.lookup.memory_megabytes or 0 if own.lookup else 0,
            draft_ahead=_draft_ahead(own, server),
            rows_per_call=rows,
            engine_queue_delay_us=_queue_delay(model, plan, rows),
            use_draft_logits=own.compares_logits,
            fast_logits=own.fast_logits,
        )


def _queue_delay(model: SpeculativeModel, plan: RepositoryPlan, rows: int) -> int:
    """How long the engine's queue holds calls, in microseconds: the spec's, or else a default.

    With the default delay, the calls of several sequences begin in the same step. It is 0 if a
    call can hold all sequences.
    """
    triton = model.spec.serving.triton
    if triton is not None and triton.queue_delay_microseconds is not None:
        return triton.queue_delay_microseconds
    return 0 if rows == plan.max_batch_size else QUEUE_DELAY_US


def _rows_per_call(own: DraftTarget, plan: RepositoryPlan) -> int:
    """Rows of a call: the spec's, else the backend's; 1 if an engine sends one response a call."""
    if not plan.decoupled:
        return 1
    return own.rows_per_call or plan.rows_per_call


def _draft_ahead(own: DraftTarget, server: Server) -> int:
    """Prompts in flight up to which drafting is pipelined: by default 1 on separate GPUs."""
    if own.draft_ahead is not None:
        return own.draft_ahead
    target, draft = (set(server.gpu_device_ids.get(role, ())) for role in ("target", "draft"))
    return int(bool(target and draft) and target.isdisjoint(draft))


METHOD = DraftTargetMethod()
