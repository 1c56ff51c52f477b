"""The model repositories of a service: the same layout whatever backend serves it."""

from collections.abc import Mapping

from specdec.api.model import Acceptance, Lookahead, Method, ModelSpec, SpeculativeModel
from specdec.backends.facts import Facts
from specdec.backends.lengths import adaptive_lengths, draft_ceiling, draft_tokens
from specdec.triton import library
from specdec.triton.layout import RankPlan, Server
from specdec.triton.plan import SchedulerPolicy
from specdec.triton.repository import LookaheadPlan, ModelPlan, RepositoryPlan

_POLICIES: dict[str, SchedulerPolicy] = {
    "GuaranteedNoEvict": "guaranteed_no_evict",
    "MaxUtilization": "max_utilization",
}
_MIB = 1024 * 1024


def repositories(
    model: SpeculativeModel, facts: Facts, ranks: RankPlan
) -> dict[str, RepositoryPlan]:
    """The repository of each server by folder; the only server of a service has no folder."""
    engines = {
        role: _engine(model.models[role], facts, server, role)
        for server in ranks.servers
        for role in server.gpu_device_ids
    }
    if len(ranks.servers) == 1:
        return {"": _together(model, facts, ranks.servers[0], engines)}
    # The client runs the loop: each server answers for one plain model of the usual names.
    return {role: _alone(model, facts, role, engine) for role, engine in engines.items()}


def _together(
    model: SpeculativeModel, facts: Facts, server: Server, engines: Mapping[str, ModelPlan]
) -> RepositoryPlan:
    speculation, runtime = model.spec.speculation, model.spec.runtime
    block, target = speculation.draft_target, model.spec.target
    sizes = speculation.lookahead or Lookahead()
    lookahead = LookaheadPlan(sizes.window_size, sizes.ngram_size, sizes.verification_set_size)
    tree = speculation.eagle or speculation.medusa
    return RepositoryPlan(
        version=facts.version,
        method=speculation.method.value,
        tokenizer_dir=facts.checkpoints["target"].path,
        target=engines["target"],
        draft=engines.get("draft"),
        lookahead=lookahead if speculation.method is Method.LOOKAHEAD else None,
        choices=tree.choices if tree else (),
        max_batch_size=min(spec.limits.max_batch_size for spec in model.models.values()),
        decoupled=model.spec.serving.streaming,
        draft_tokens=draft_tokens(model),
        max_draft_tokens=draft_ceiling(model),
        adaptive=adaptive_lengths(model),
        draft_ahead=_draft_ahead(model, server),
        max_seq_len=target.limits.max_seq_len,
        use_draft_logits=block is not None and block.acceptance is Acceptance.LOGITS,
        fast_logits=block is not None and block.fast_logits,
        enable_kv_cache_reuse=target.kv_cache.reuse,
        batch_scheduler_policy=_POLICIES[runtime.batch_scheduler_policy],
        chunked_context=runtime.chunked_context,
        parameters=tuple(sorted(runtime.parameters.items())),
        max_queue_size=model.spec.serving.max_queue_size,
        library=library.source(),
    )


def _draft_ahead(model: SpeculativeModel, server: Server) -> int:
    """Answers for which the draft works beside the target: one where it takes no GPU from it."""
    block = model.spec.speculation.draft_target
    if block is None:
        return 0
    if block.draft_ahead is not None:
        return block.draft_ahead
    target, draft = (set(server.gpu_device_ids.get(role, ())) for role in ("target", "draft"))
    return int(bool(target and draft) and target.isdisjoint(draft))


def _alone(model: SpeculativeModel, facts: Facts, role: str, engine: ModelPlan) -> RepositoryPlan:
    spec, runtime = model.models[role], model.spec.runtime
    return RepositoryPlan(
        version=facts.version,
        method="None",
        tokenizer_dir=facts.checkpoints[role].path,
        target=engine,
        max_batch_size=spec.limits.max_batch_size,
        decoupled=model.spec.serving.streaming,
        max_seq_len=spec.limits.max_seq_len,
        enable_kv_cache_reuse=spec.kv_cache.reuse,
        batch_scheduler_policy=_POLICIES[runtime.batch_scheduler_policy],
        chunked_context=runtime.chunked_context,
        parameters=tuple(sorted(runtime.parameters.items())),
        max_queue_size=model.spec.serving.max_queue_size,
        library=library.source(),
    )


def _engine(spec: ModelSpec, facts: Facts, server: Server, role: str) -> ModelPlan:
    budget = spec.kv_cache
    tokens, fraction = budget.max_tokens, None
    if budget.memory_percent is not None:
        fraction = f"{budget.memory_percent / 100:.2f}"
    elif tokens is None:
        # An explicit budget, so that two models in one server never race for what is free:
        # the memory plan's, else room for a full batch of full sequences.
        full = spec.limits.max_batch_size * spec.limits.max_seq_len
        tokens = facts.kv_tokens.get(role, full)
    host = budget.host_memory_mi_b
    return ModelPlan(
        engine_dir=facts.engines[role].path,
        gpu_device_ids=server.named_ids(role),
        participant_ids=server.participant_ids.get(role, ()),
        max_tokens_in_paged_kv_cache=tokens,
        kv_cache_fraction=fraction,
        kv_cache_host_memory_bytes=None if host is None else host * _MIB,
    )
