"""The Jobs that measure a service: a short verification, and a benchmark with a report.

They run the operator's own image and are clients of the Service. Only the benchmark mounts the
volume, to which it writes its report.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from specdec import servers
from specdec.api import names
from specdec.api.measurement import ConfigMapKey
from specdec.api.model import SpeculativeModel
from specdec.api.value import Value
from specdec.desired import tls
from specdec.desired.child import given, metadata
from specdec.desired.fetch import own_job
from specdec.desired.network import address
from specdec.desired.pod import Container, Volume

VERIFY, BENCHMARK = "verify", "benchmark"
PROMPTS = "/specdec/prompts"
_FILE = "prompts.jsonl"
_REPORTS = "reports"
_RESOURCES = {
    "requests": {"cpu": "250m", "memory": "128Mi"},
    "limits": {"memory": "512Mi"},
}
# The benchmark holds a response of every client, and resamples its measurements (bootstrap).
_BENCHMARK_RESOURCES = {
    "requests": {"cpu": "500m", "memory": "256Mi"},
    "limits": {"memory": "1Gi"},
}


def verification_hash(
    model: SpeculativeModel, repository: str, image: str, draft_tokens: int
) -> str:
    """A hash of what a verification measures: the servers, and the requests it sends."""
    spec = model.spec.verification
    settings = {"maxPrompts": spec.max_prompts, "maxTokens": spec.max_tokens, "run": spec.run}
    settings |= _client_rounds(model, draft_tokens)
    return _hash(model, repository, image, spec.prompts_config_map_ref, settings)


def benchmark_hash(model: SpeculativeModel, repository: str, image: str, draft_tokens: int) -> str:
    """A hash of what a benchmark measures: the servers, and the requests it sends."""
    spec = model.spec.benchmark
    settings = {
        "levels": spec.levels,
        "requests": spec.requests,
        "outputTokens": spec.output_tokens,
        "maxErrorPercent": spec.max_error_percent,
        "run": spec.run,
        **given(baseline=spec.baseline_name),
        **_client_rounds(model, draft_tokens),
    }
    return _hash(model, repository, image, spec.prompts_config_map_ref, settings)


def _client_rounds(model: SpeculativeModel, draft_tokens: int) -> dict[str, Any]:
    """The draft length, where the client of two servers sets it and no repository has it."""
    return {"draftTokens": draft_tokens} if "draft" in names.servers(model) else {}


def _hash(
    model: SpeculativeModel,
    repository: str,
    image: str,
    prompts: ConfigMapKey | None,
    settings: Mapping[str, Any],
) -> str:
    config_map, secure = prompts.model_dump() if prompts else None, model.spec.serving.tls
    server = {"repository": repository, "image": image}
    server |= given(tls=secure.model_dump() if secure else None)
    server |= {} if model.spec.serving.http == "Open" else {"http": model.spec.serving.http}
    server |= given(pods=_pods(model))
    return names.digest({**server, "prompts": config_map, **settings})[:16]


def _pods(model: SpeculativeModel) -> dict[str, Any]:
    """What changes the speed of the servers, and maybe their output, beside the repository.

    The number of pods is not here. An autoscaler changes it, also because of the load of a
    benchmark, and each change would measure again.
    """
    serving = model.spec.serving
    products = {role: model.gpu(role).product for role in model.models}
    return given(
        products=given(**products),
        resources=serving.resources,
        env=_dumped(serving.env),
        nodeSelector=serving.node_selector,
        affinity=serving.affinity,
        runtimeClassName=serving.runtime_class_name,
        resourceClaims=_dumped(serving.resource_claims),
        nodesPerReplica=serving.nodes_per_replica if serving.nodes_per_replica > 1 else None,
        extraVolumes=_dumped(serving.extra_volumes),
        extraVolumeMounts=_dumped(serving.extra_volume_mounts),
        logVerbose=serving.triton.log_verbose if serving.triton else None,
    )


def _dumped(values: Iterable[Value]) -> list[dict[str, Any]]:
    return [value.model_dump(by_alias=True, exclude_none=True) for value in values]


def verify_job(
    model: SpeculativeModel, plan_hash: str, version: str, draft_tokens: int, image: str
) -> dict[str, Any]:
    """The Job that verifies a service; `version` is the TensorRT-LLM release of its repository.

    `draft_tokens` is the draft length of a request.
    """
    spec = model.spec.verification
    plan = {
        **_plan(model, plan_hash, draft_tokens, spec.prompts_config_map_ref),
        **given(metrics=_metrics(model, version)),
        "kind": servers.of(model).name,
        "compares": _compares(model),
        **given(clientLoop=_client_loop(model) or None),
        "maxPrompts": spec.max_prompts,
        "maxTokens": spec.max_tokens,
    }
    ref, deadline = spec.prompts_config_map_ref, spec.timeout_seconds
    return _job(model, VERIFY, plan, None, image, ref, _RESOURCES, deadline)


def benchmark_job(
    model: SpeculativeModel,
    plan_hash: str,
    draft_tokens: int,
    volume: Volume,
    image: str,
    baseline: SpeculativeModel | None = None,
) -> dict[str, Any]:
    """The Job that measures the service with speculation and without; its report is a file.

    Without a `baseline`, requests with `draft_tokens` are compared with requests without drafts.
    """
    spec = model.spec.benchmark
    # Both sides are measured over the same protocol.
    http = all(side.spec.serving.takes_http for side in (model, baseline) if side)
    plan = {
        **_plan(model, plan_hash, draft_tokens, spec.prompts_config_map_ref),
        **_service(model, http=http),
        **given(
            protocol="http" if http else None,
            baseline={"name": baseline.metadata.name, **_service(baseline, http=http)}
            if baseline
            else None,
        ),
        "concurrency": list(spec.levels),
        "requests": spec.requests,
        "outputTokens": spec.output_tokens,
        "maxErrorPercent": spec.max_error_percent,
        "report": report(model, plan_hash),
    }
    ref, deadline = spec.prompts_config_map_ref, spec.timeout_seconds
    return _job(model, BENCHMARK, plan, volume, image, ref, _BENCHMARK_RESOURCES, deadline)


def report(model: SpeculativeModel, plan_hash: str) -> str:
    """Path of a benchmark's report below the volume's root."""
    return f"{_REPORTS}/{model.metadata.name}-{model.metadata.namespace}/{plan_hash}.json"


def _plan(
    model: SpeculativeModel, plan_hash: str, draft_tokens: int, prompts: ConfigMapKey | None
) -> dict[str, Any]:
    roles, server = names.servers(model), servers.of(model).serving
    grpc = server.grpc if server.grpc in server.ports else server.http
    return {
        "planHash": plan_hash,
        "server": address(model, "target", grpc),
        "draftTokens": draft_tokens,
        **given(
            tls=tls.plan(model),
            draftServer=address(model, "draft", grpc) if "draft" in roles else None,
            prompts=f"{PROMPTS}/{_FILE}" if prompts else None,
            promptsName=f"ConfigMap {prompts.name}, key {prompts.key}" if prompts else None,
        ),
    }


def _metrics(model: SpeculativeModel, version: str) -> str | None:
    """The address of the server's draft counters, if responses do not have all counts.

    None with several replicas: each request to the Service may read another pod's metrics.
    """
    if model.spec.serving.replicas != 1:
        return None
    kind = servers.of(model)
    # Drafts inside an engine that shows its steps are in no counter, nor are those of a client.
    if _client_loop(model) or (kind.counters.engine and not _compares(model)):
        return None
    # Responses have no counts by source.
    lookups = model.spec.speculation.block.drafts_from_lookups
    is_complete = kind.counters.in_answers(version) and not lookups
    if is_complete or not kind.counters.metrics:
        return None
    return address(model, "target", kind.serving.metrics)


def _compares(model: SpeculativeModel) -> bool:
    """Whether answers of the target alone come from the same service."""
    return (
        servers.of(model).requests.drafts_by_request and not model.spec.speculation.block.in_engine
    )


def _client_loop(model: SpeculativeModel) -> bool:
    """Whether clients run the draft/target loop, because target and draft have own servers."""
    return "draft" in names.servers(model)


def _service(model: SpeculativeModel, *, http: bool) -> dict[str, Any]:
    """How a benchmark reaches a service; over HTTP its client adds less overhead."""
    kind = servers.of(model)
    server = kind.serving
    port = server.openai or (server.http if http else server.grpc)
    at = address(model, "target", port)
    return {"kind": kind.name, "server": at, "model": kind.requests.model}


def _job(
    model: SpeculativeModel,
    component: str,
    plan: Mapping[str, Any],
    volume: Volume | None,
    image: str,
    prompts: ConfigMapKey | None,
    resources: Mapping[str, Any],
    deadline: int,
) -> dict[str, Any]:
    mounts = {"name": "prompts", "mountPath": PROMPTS, "readOnly": True}
    secure = tls.client(model)
    container = Container(
        name=component,
        image=image,
        pull_policy="IfNotPresent",
        command=["python", "-m", f"specdec.jobs.{component}", "--plan", names.canonical(plan)],
        env=[{"name": "PYTHONUNBUFFERED", "value": "1"}],
        mounts=[*([mounts] if prompts else []), *secure.mounts],
        resources=resources,
    )
    volumes = [*_volumes(prompts), *secure.volumes]
    name = names.job_name(model, component, plan["planHash"])
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(model, name, component, tags=model.spec.metadata.jobs),
        "spec": own_job(model, container, volume, component, volumes, deadline),
    }


def _volumes(prompts: ConfigMapKey | None) -> list[dict[str, Any]]:
    """The ConfigMap's key as one file.

    The key is optional: the Job reports a missing key, while a pod that requires the key would
    only wait.
    """
    if prompts is None:
        return []
    items = [{"key": prompts.key, "path": _FILE}]
    source = {"name": prompts.name, "items": items, "optional": True}
    return [{"name": "prompts", "configMap": source}]
