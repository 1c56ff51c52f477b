"""The model repositories of a service, in the layout of TensorRT-LLM's Triton backend."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from specdec.api.model import SpeculativeModel
from specdec.api.serving import Triton
from specdec.backends import methods
from specdec.backends.building import draft_length
from specdec.backends.facts import Facts
from specdec.triton import library
from specdec.triton.layout import RankPlan, Server
from specdec.triton.plan import Parameters
from specdec.triton.repository import ModelPlan, RepositoryPlan, render

_POLICIES = {
    "GuaranteedNoEvict": "guaranteed_no_evict",
    "MaxUtilization": "max_utilization",
}
_MIB = 1024 * 1024


def repository(
    model: SpeculativeModel, facts: Facts, ranks: RankPlan, *, full_calls: bool
) -> dict[str, str]:
    """The files of all servers: path -> text. Those of a server are below its folder."""
    made = plans(model, facts, ranks, full_calls=full_calls)
    return {
        f"{folder}/{path}" if folder else path: text
        for folder, plan in made.items()
        for path, text in _rendered(plan).items()
    }


@lru_cache(maxsize=16)
def _rendered(plan: RepositoryPlan) -> Mapping[str, str]:
    return render(plan)


def plans(
    model: SpeculativeModel, facts: Facts, ranks: RankPlan, *, full_calls: bool
) -> dict[str, RepositoryPlan]:
    """The repository of each server by its folder, which is empty for a single server.

    Args:
        full_calls: whether a call of an engine may have as many rows as a batch, unless the spec
            limits the rows. Otherwise a call has one row.
    """
    engines = {
        role: _engine(model, facts, server, role)
        for server in ranks.servers
        for role in server.gpu_device_ids
    }
    if len(ranks.servers) > 1:
        # The client runs the loop: each server has one model, without speculation.
        return {role: _plan(model, facts, role, engine) for role, engine in engines.items()}
    (server,) = ranks.servers
    batch = min(spec.limits.max_batch_size for spec in model.models.values())
    plan = _plan(model, facts, "target", engines["target"], batch)
    plan = replace(plan, rows_per_call=batch if full_calls else 1)
    return {"": methods.of(model).configured(plan, model, server, engines)}


def _plan(
    model: SpeculativeModel, facts: Facts, role: str, engine: ModelPlan, batch: int | None = None
) -> RepositoryPlan:
    """The repository of one model without speculation.

    `batch` is the maximum batch size; None means that of the engine.
    """
    spec, runtime, serving = model.models[role], model.spec.runtime, model.spec.serving
    triton = serving.triton or Triton()
    return RepositoryPlan(
        version=facts.version,
        tokenizer_dir=facts.checkpoints[role].path,
        target=engine,
        max_batch_size=spec.limits.max_batch_size if batch is None else batch,
        decoupled=serving.streaming,
        max_seq_len=spec.limits.max_seq_len,
        enable_kv_cache_reuse=spec.kv_cache.reuse,
        parameters=tuple(sorted(runtime.parameters.items())),
        max_queue_size=serving.max_queue_size,
        preprocessing_instances=triton.preprocessing_instances,
        postprocessing_instances=triton.postprocessing_instances,
        engine_queue_delay_us=triton.queue_delay_microseconds or 0,
        library=library.source_digest(),
        request_fields=facts.request_fields,
    )


def _engine(model: SpeculativeModel, facts: Facts, server: Server, role: str) -> ModelPlan:
    spec = model.models[role]
    budget = spec.kv_cache
    tokens, fraction = budget.max_tokens, None
    if budget.memory_percent is not None:
        fraction = f"{budget.memory_percent / 100:.2f}"
    elif tokens is None:
        # With an explicit budget, two models in one server do not compete for free memory. The
        # memory plan sets it. Without a plan, it is a full batch of sequences of full length.
        prebuilt = facts.checkpoints.get(f"{role}-engine")
        longest = spec.limits.max_seq_len + draft_length(model, role, prebuilt)
        full = spec.limits.max_batch_size * longest
        tokens = facts.kv_tokens.get(role, full)
    host = budget.host_memory_mi_b
    own = methods.of(model).parameters(model) if role == "target" else ()
    return ModelPlan(
        engine_dir=facts.engines[role].path,
        gpu_device_ids=server.named_ids(role),
        participant_ids=server.participant_ids.get(role, ()),
        max_tokens_in_paged_kv_cache=tokens,
        kv_cache_fraction=fraction,
        kv_cache_host_memory_bytes=None if host is None else host * _MIB,
        parameters=_fields(model) + own,
    )


def _fields(model: SpeculativeModel) -> Parameters:
    """Keys of `config.pbtxt` that fields of the spec set; other keys keep the table's values."""
    runtime = model.spec.runtime
    keys = {
        "batch_scheduler_policy": _POLICIES[runtime.batch_scheduler_policy],
        "enable_chunked_context": "true" if runtime.chunked_context else "",
    }
    return tuple((key, value) for key, value in keys.items() if value)
