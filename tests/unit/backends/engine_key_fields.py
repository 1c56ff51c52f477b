"""A changed value for every field of the spec, grouped by its effect on engine keys."""

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel

from specdec.api.children import Tags
from specdec.api.measurement import ConfigMapKey
from specdec.api.model import Source
from specdec.api.model_spec import OwnServer
from specdec.api.networking import GatewayRoute, IngressRoute, OpenAI, Tls
from specdec.api.operations import ResourceClaim, Scaling
from specdec.api.pods import Variable
from specdec.api.sidecars import Sidecar
from specdec.api.source import AuthorityRef
from specdec.api.value import Reference, SecretKey
from specdec.api.volumes import ExtraVolume, ExtraVolumeMount
from support.simulated_cluster import source

# Fields of a model, which is the target or the draft.
MODEL_BUILD = {
    "dtype": "BFloat16",
    "quantization.method": "FP8",
    "quantization.kvCache": "FP8",
    "quantization.calibration.dataset": "/models/own/dataset",
    "quantization.calibration.samples": 64,
    "parallelism.tensor": 2,
    "parallelism.pipeline": 2,
    "limits.maxBatchSize": 4,
    "limits.maxSeqLen": 1024,
    "limits.maxNumTokens": 4096,
    "engine.pagedContextFmha": False,
    "engine.fp8ContextFmha": True,
    "engine.plugins.gemm": "float16",
    "engine.plugins.gptAttention": "float16",
    "engine.plugins.lowLatencyGemm": "fp8",
    "engine.workers": 2,
    "engine.extraArgs": {"multiple_profiles": "enable"},
}
MODEL_RUN = {
    "gpu.deviceIds": [3],
    "kvCache.maxTokens": 4096,
    "kvCache.memoryPercent": 40,
    "kvCache.reuse": False,
    "kvCache.hostMemoryMiB": 1024,
}
# The key depends on the content of the fetched files, and not on their source.
MODEL_SOURCES = {"source": source("elsewhere"), "engine.prebuilt": source("built")}
DRAFT = "speculation.draftTarget.draft"

# Types whose fields count as a single value here.
WHOLE = (
    Source,
    Variable,
    ConfigMapKey,
    AuthorityRef,
    Reference,
    SecretKey,
    Scaling,
    ExtraVolume,
    ExtraVolumeMount,
    ResourceClaim,
    Tls,
    OpenAI,
    Tags,
    GatewayRoute,
    IngressRoute,
    OwnServer,
    Sidecar,
)


def leaves(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the paths of all fields without fields of their own; `WHOLE` types count as such."""
    for field in model.model_fields.values():
        kinds = [field.annotation, *get_args(field.annotation)]
        inner = [k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)]
        path = f"{prefix}{field.alias}"
        if inner and inner[0] not in WHOLE:
            yield from leaves(inner[0], f"{path}.")
        else:
            yield path


WITHOUT_ENGINE = tuple(
    f"speculation.{name}"
    for name in (
        "eagle3.",
        "mtp.",
        "nGram.",
        "suffixAutomaton.",
        "pard.",
        "dFlash.",
        "draftLengthByLoad.",
        "acceptanceThreshold.",
        "acceptanceRateThreshold.",
        "penalties",
    )
)


BUILD: dict[str, Any] = {
    "runtime.version": "1.2.1",
    "runtime.image": "example.com/own:1",
    "gpu.product": "NVIDIA-L40S",
    "checks.image": "Warn",
    "speculation.maxDraftTokens": 32,
    "speculation.draftTarget.acceptance": "Logits",
    "speculation.draftTarget.draftServer": {"gpu": {"product": "NVIDIA-L4"}},
    "speculation.eagle.numLayers": 5,
    "speculation.eagle.maxNonLeavesPerLayer": 12,
    "speculation.medusa.numHeads": 5,
    "speculation.medusa.numLayers": 2,
    "speculation.reDrafter.numBeams": 6,
    "speculation.reDrafter.draftLenPerBeam": 6,
    "speculation.reDrafter.greedySearch": False,
    "speculation.lookahead.windowSize": 5,
    "speculation.lookahead.ngramSize": 5,
    "speculation.lookahead.verificationSetSize": 5,
    **{f"target.{path}": value for path, value in MODEL_BUILD.items()},
    **{f"{DRAFT}.{path}": value for path, value in MODEL_BUILD.items()},
}
KINDS = ("jobs", "jobPods", "servers", "serverPods", "services", "routes")
RUN: dict[str, Any] = {
    "runtime.pullPolicy": "Always",
    "runtime.pullSecrets": [{"name": "pull"}],
    "runtime.batchSchedulerPolicy": "MaxUtilization",
    "runtime.chunkedContext": True,
    "runtime.parameters": {"multi_block_mode": "false"},
    "runtime.arguments": {"stream_interval": 4},
    "speculation.draftTokens": 2,
    "speculation.draftLengthPolicy.type": "Adaptive",
    "speculation.draftLengthPolicy.minLength": 1,
    "speculation.draftLengthPolicy.maxLength": 3,
    "speculation.draftTarget.topology": "TwoServers",
    "speculation.draftTarget.placement": "Dedicated",
    "speculation.draftTarget.fastLogits": True,
    "speculation.draftTarget.draftLengthCeiling": 6,
    "speculation.draftTarget.draftAhead": 2,
    "speculation.draftTarget.heterogeneousVocabulary": True,
    "speculation.draftTarget.rowsPerCall": 2,
    "speculation.draftTarget.lookup.minMatch": 3,
    "speculation.draftTarget.lookup.memoryMegabytes": 64,
    "speculation.eagle.choices": [[0], [0, 0]],
    "speculation.medusa.choices": [[0], [0, 0]],
    "serving.replicas": 3,
    "serving.openAI": {"port": 8080},
    "serving.nodesPerReplica": 2,
    "serving.streaming": False,
    "serving.http": "HealthOnly",
    "serving.resources": {"limits": {"memory": "8Gi"}},
    "serving.nodeSelector": {"zone": "a"},
    "serving.tolerations": [{"operator": "Exists"}],
    "serving.affinity": {"nodeAffinity": {}},
    "serving.sharedMemory": "4Gi",
    "serving.probes.startupBudgetSeconds": 60,
    "serving.drain.timeoutSeconds": 60,
    "serving.maxQueueSize": 10,
    "serving.extraVolumes": [{"name": "rules", "configMap": {"name": "rules"}}],
    "serving.extraVolumeMounts": [{"name": "rules", "mountPath": "/etc/ours"}],
    "serving.sidecars": [{"name": "shipper", "image": "registry.example/shipper:1"}],
    "serving.triton.preprocessingInstances": 4,
    "serving.triton.postprocessingInstances": 4,
    "serving.triton.queueDelayMicroseconds": 100,
    "serving.triton.logVerbose": 1,
    "serving.topologySpreadConstraints": [{"topologyKey": "zone"}],
    "serving.priorityClassName": "high",
    "serving.runtimeClassName": "nvidia",
    "serving.resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}],
    "serving.env": [{"name": "NCCL_DEBUG", "value": "INFO"}],
    "pods.serviceAccountName": "models",
    "pods.user": "Assigned",
    "serving.scaling": {"maxReplicas": 2, "metrics": [{"type": "Cpu", "target": "70"}]},
    "serving.disruption.mode": "Disabled",
    "serving.disruption.maxUnavailable": 2,
    "serving.disruption.minAvailable": 2,
    "serving.rollout.strategy": "Recreate",
    **{f"serving.rollout.{bound}": 2 for bound in ("maxSurge", "maxUnavailable")},
    "serving.tls": {"secretName": "pair-tls"},
    "networking.service.type": "NodePort",
    "networking.gateway": {"parentRefs": [{"name": "public"}]},
    "networking.ingress": {"hosts": ["llm.example.com"]},
    "networking.networkPolicy.mode": "Enabled",
    "networking.networkPolicy.from": [{"podSelector": {}}],
    **{f"metadata.{kind}": {"labels": {"team": "a"}} for kind in KINDS},
    "suspend": True,
    "revisionHistoryLimit": 2,
    **{f"target.{path}": value for path, value in MODEL_RUN.items()},
    **{f"{DRAFT}.{path}": value for path, value in MODEL_RUN.items()},
}
# Fields that affect neither the engine nor the server.
NEITHER: dict[str, Any] = {
    "gpu.memoryMiB": 1000,
    "gpu.computeCapability": "9.0",
    **{
        f"checks.{name}": "Disabled"
        for name in ("tokenizer", "vocabulary", "specialTokens", "heads")
    },
    **{f"checks.{name}": "Enforce" for name in ("chatTemplate", "contextLength", "architecture")},
    "checks.memory": "Warn",
    "verification.mode": "Gate",
    "verification.promptsConfigMapRef": {"name": "prompts"},
    "verification.maxPrompts": 3,
    "verification.maxTokens": 9,
    "verification.minAcceptancePercent": 50,
    "verification.minSpeedupPercent": 120,
    "verification.timeoutSeconds": 60,
    "verification.run": "again",
    "benchmark.mode": "OnReady",
    "benchmark.baseline.modelRef": {"name": "plain"},
    "benchmark.promptsConfigMapRef": {"name": "prompts"},
    "benchmark.concurrency": [2],
    "benchmark.requests": 9,
    "benchmark.outputTokens": 9,
    "benchmark.maxErrorPercent": 9,
    "benchmark.timeoutSeconds": 60,
    "benchmark.run": "again",
    "fetch.activeDeadlineSeconds": 60,
    "fetch.caConfigMapRef": {"name": "ca"},
    "fetch.proxySecretRef": {"name": "proxy"},
    "build.backoffLimit": 5,
    "build.activeDeadlineSeconds": 60,
    "build.resources": {"limits": {"memory": "8Gi"}},
    "build.nodeSelector": {"zone": "a"},
    "build.sharedMemory": "4Gi",
    "build.tolerations": [{"operator": "Exists"}],
    "build.affinity": {"nodeAffinity": {}},
    "build.resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}],
    "build.priorityClassName": "batch",
    "build.runtimeClassName": "nvidia",
    "jobs.nodeSelector": {"pool": "cpu"},
    "jobs.tolerations": [{"operator": "Exists"}],
    "jobs.affinity": {"nodeAffinity": {}},
    "jobs.priorityClassName": "batch",
    **{
        f"jobs.{kind}.resources": {"limits": {"memory": "8Gi"}}
        for kind in ("fetch", "publish", "measurement")
    },
    "storage.existingClaim": "other",
    "storage.size": "9Gi",
    "storage.storageClassName": "fast",
    "storage.accessMode": "ReadWriteMany",
}
