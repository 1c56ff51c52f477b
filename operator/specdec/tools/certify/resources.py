"""Build what a run creates: resources, their claim, and the Job that sends load to a resource.

Pure builders; `live` applies them. Everything carries the label of the run, by which a later run
recognizes it.
"""

import copy
from collections.abc import Mapping
from typing import Any

from specdec import backends, servers
from specdec.api import names
from specdec.api.model import API_VERSION, KIND, SpeculativeModel
from specdec.api.tables import table
from specdec.desired.fetch import own_job
from specdec.desired.network import address
from specdec.desired.pod import GPU, Container
from specdec.tools.certify.facts import Gpus
from specdec.tools.certify.request import DTYPES, CertifyRequest, source

Json = dict[str, Any]
MANAGER = "specdec-certify"
RUN = "certify.specdec.dev/run"
SPEC = "certify.specdec.dev/spec"
CLAIM = "specdec-certify"
COMPONENT = "throughput"
CONCURRENCY = (1, 8)
DRAFT_TOKENS = 4
MAX_DRAFT_TOKENS = 8
_VERIFIED_TOKENS = 32
_DEADLINE_SECONDS = 3600
# Many clusters have this taint on nodes with GPUs to keep other pods away.
_TOLERATIONS = [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}]
_LOAD_RESOURCES = {
    "requests": {"cpu": "250m", "memory": "192Mi"},
    "limits": {"memory": "512Mi"},
}


def resource_name(entry: str) -> str:
    """The name of an entry's resource."""
    return f"certify-{entry}"


def base_spec(request: CertifyRequest, gpus: Gpus | None, target: str) -> Json:
    """A spec without speculation.

    Args:
        request: the options of the run.
        gpus: the GPUs to run on; None for a backend without GPUs.
        target: the option whose source is the target: --target or --heads-target.
    """
    limits = _limits(request)
    spec: Json = {
        "runtime": {"backend": str(request.backend), "version": request.served_version},
        "target": {**_model(request, target), "limits": limits},
        "speculation": {"method": "None"},
        "storage": {"existingClaim": request.claim or CLAIM},
        "serving": _serving(request, heads=target == "--heads-target"),
        # The speed is part of the report, and not a condition for a pass.
        "verification": {
            "maxPrompts": request.prompts,
            "maxTokens": min(_VERIFIED_TOKENS, request.output_tokens),
            "minSpeedupPercent": 0,
        },
    }
    if request.image is not None:
        spec["runtime"]["image"] = request.image
    if gpus is not None:
        spec["build"] = {"tolerations": _TOLERATIONS}
        spec["gpu"] = {"product": gpus.product}
        if gpus.memory_mib is not None and gpus.memory_mib >= 1024:
            spec["gpu"]["memoryMiB"] = gpus.memory_mib
        if gpus.compute_capability is not None:
            spec["gpu"]["computeCapability"] = gpus.compute_capability
    return spec


def draft_target(request: CertifyRequest, spec: Json, **block: Any) -> Json:
    """The spec with a draft model; `block` are fields of spec.speculation.draftTarget."""
    changed = copy.deepcopy(spec)
    if not request.drafts_by_request:
        draft = {"source": _model(request, "--draft")["source"]}
        if request.has("draftLimits"):
            draft["limits"] = {"maxSeqLen": _limits(request)["maxSeqLen"]}
        changed["speculation"] = {
            "method": "DraftTarget",
            "maxDraftTokens": DRAFT_TOKENS,
            "draftTarget": {"draft": draft},
        }
        return changed
    draft = {**_model(request, "--draft"), "limits": _limits(request)}
    changed["speculation"] = {
        "method": "DraftTarget",
        "maxDraftTokens": MAX_DRAFT_TOKENS,
        "draftTokens": DRAFT_TOKENS,
        "draftTarget": {"draft": draft, **block},
    }
    if block.get("topology") != "TwoServers":
        changed["benchmark"] = _benchmark(request)
    return changed


def n_gram(request: CertifyRequest, spec: Json) -> Json:
    """The spec with drafts from the text itself."""
    speculation = {"method": "NGram", "maxDraftTokens": MAX_DRAFT_TOKENS}
    changed = {**copy.deepcopy(spec), "speculation": speculation}
    # Where no request can turn drafts off, there is nothing to alternate with.
    return {**changed, "benchmark": _benchmark(request)} if request.drafts_by_request else changed


def suffix_automaton(_: CertifyRequest, spec: Json) -> Json:
    """The spec with drafts by a suffix automaton."""
    speculation = {"method": "SuffixAutomaton", "maxDraftTokens": MAX_DRAFT_TOKENS}
    return {**copy.deepcopy(spec), "speculation": speculation}


def _benchmark(request: CertifyRequest) -> Json:
    return {
        "mode": "OnReady",
        "concurrency": list(CONCURRENCY),
        "requests": request.prompts,
        "outputTokens": request.output_tokens,
        "maxErrorPercent": 0,
    }


def lookahead(request: CertifyRequest, spec: Json) -> Json:
    """The spec with Lookahead: the sizes in TensorRT-LLM's guides, or small ones for a CPU."""
    sizes = (7, 7, 7) if request.support.on_gpus else (4, 3, 4)
    block = dict(zip(("windowSize", "ngramSize", "verificationSetSize"), sizes, strict=True))
    return {**copy.deepcopy(spec), "speculation": {"method": "Lookahead", "lookahead": block}}


def with_heads(request: CertifyRequest, spec: Json, method: str) -> Json:
    """The spec with the heads that the request names for a method."""
    option = f"--heads {method}"
    checkpoint = source(option, request.heads[method], request.token_secret)
    row = copy.deepcopy(table(__package__, "heads.yaml")[method])
    block, field = row["checkpoint"]
    speculation = row["speculation"]
    if "tree" in row and not request.has(row["tree"]):
        speculation = {"maxDraftTokens": DRAFT_TOKENS, block: {}}
    speculation[block] |= {field: checkpoint}
    return {**copy.deepcopy(spec), "speculation": {"method": method, **speculation}}


def resource(entry: str, namespace: str, spec: Mapping[str, Any], run: str) -> Json:
    """The SpeculativeModel of an entry; an annotation has the digest of its spec."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": resource_name(entry),
            "namespace": namespace,
            "labels": {RUN: run},
            "annotations": {SPEC: names.digest(spec)[:16]},
        },
        "spec": dict(spec),
    }


def claim(request: CertifyRequest, namespace: str, run: str) -> Json:
    """The claim for the checkpoints and engines of all entries."""
    spec: Json = {
        "accessModes": [request.access_mode],
        "resources": {"requests": {"storage": request.size}},
    }
    if request.storage_class is not None:
        spec["storageClassName"] = request.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM, "namespace": namespace, "labels": {RUN: run}},
        "spec": spec,
    }


def throughput_job(live: Mapping[str, Any], image: str, request: CertifyRequest, run: str) -> Json:
    """The Job that sends load to a served resource and returns its throughput.

    Args:
        live: the resource, as the API server has it.
        image: the operator's.
        request: of the run.
        run: identifies the run.
    """
    model = SpeculativeModel.parse(dict(live))
    kind = servers.of(model)
    grpc = kind.serving.grpc
    separate = "draft" in names.servers(model)
    plan: Json = {
        "kind": kind.name,
        "server": address(model, "target", grpc),
        "draftTokens": backends.method(model).draft_tokens(model) or 0,
        "prompts": request.prompts,
        "outputTokens": request.output_tokens,
        "concurrency": list(CONCURRENCY),
    }
    if separate:
        plan |= {"clientLoop": True, "draftServer": address(model, "draft", grpc)}
    container = Container(
        name=COMPONENT,
        image=image,
        pull_policy="IfNotPresent",
        command=["python", "-m", f"specdec.jobs.{COMPONENT}", "--plan", names.canonical(plan)],
        env=[{"name": "PYTHONUNBUFFERED", "value": "1"}],
        mounts=[],
        resources=_LOAD_RESOURCES,
    )
    spec = own_job(model, container, None, COMPONENT, [], _DEADLINE_SECONDS)
    # The Job and its pods lack the operator's labels, so that the operator does not manage them.
    own_labels = {RUN: run, names.COMPONENT: COMPONENT}
    spec["template"]["metadata"]["labels"] = own_labels
    owner = {**names.owned_by(model)[0], "blockOwnerDeletion": False}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{model.metadata.name}-{COMPONENT}-{model.metadata.uid[:8]}",
            "namespace": model.metadata.namespace,
            "labels": own_labels,
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _model(request: CertifyRequest, option: str) -> Json:
    model: Json = {"source": source(option, request.sources[option], request.token_secret)}
    if (dtype := DTYPES.get(request.sources[option])) is not None:
        model["dtype"] = dtype
    return model


def _limits(request: CertifyRequest) -> Json:
    prompt, longest, step = (1024, 2048, 8192) if request.support.on_gpus else (128, 256, 2048)
    own = {"maxInputLen": prompt} if request.has("inputLimit") else {}
    return {"maxBatchSize": 8, **own, "maxSeqLen": longest, "maxNumTokens": step}


def _serving(request: CertifyRequest, *, heads: bool) -> Json:
    if not request.support.on_gpus:
        small = {"requests": {"cpu": "100m", "memory": "512Mi"}}
        return {"sharedMemory": "256Mi", "resources": small, "drain": {"timeoutSeconds": 10}}
    requests = {"cpu": 4, "memory": "32Gi"} if heads else {"cpu": 2, "memory": "12Gi"}
    return {
        "resources": {"requests": requests},
        "tolerations": _TOLERATIONS,
        "drain": {"timeoutSeconds": 30},
    }
