"""`SpeculativeModel` as frozen typed values, parsed once at the boundary.

The CustomResourceDefinition in `crds/` is the source of the API, and a test compares this module
with it. Fields of pods, such as tolerations, stay plain dictionaries: the operator copies them to
the children and reads only a few of their fields (`value.py`).
"""

from typing import Any, Literal, Self

from pydantic import Field, ValidationError

from specdec.api.children import ChildMetadata
from specdec.api.condition_types import Type
from specdec.api.jobs import Build, Jobs
from specdec.api.matrix import Backend, support
from specdec.api.measurement import Benchmark, Verification
from specdec.api.model_spec import (
    Devices,
    GpuClass,
    KvCache,
    Limits,
    ModelSpec,
    Parallelism,
    Quantization,
)
from specdec.api.networking import Networking
from specdec.api.pods import Pods
from specdec.api.resource_kind import API_VERSION, GROUP, KIND, PLURAL, VERSION
from specdec.api.serving import Serving
from specdec.api.source import Fetch, HuggingFaceSource, PvcSource, Source
from specdec.api.speculation import Method, Speculation
from specdec.api.value import PodShaped, Reference, SecretKey, Value

__all__ = [
    "API_VERSION",
    "GROUP",
    "KIND",
    "PLURAL",
    "VERSION",
    "Backend",
    "Benchmark",
    "Devices",
    "HuggingFaceSource",
    "KvCache",
    "Limits",
    "Method",
    "ModelSpec",
    "Parallelism",
    "PodShaped",
    "PvcSource",
    "Quantization",
    "SecretKey",
    "Source",
    "Speculation",
    "SpeculativeModel",
    "Value",
    "Verification",
    "explain",
]


class Runtime(Value):
    """The server: backend, version and image; unset values come from the support matrix.

    `chunked_context` that is not set is true for backend VLLM, and false for the others.
    `parameters` sets further parameters (name -> value) of the Triton models that run engines.
    `arguments` are arguments of the LLM API (backend PyTorch) or of vLLM's engine (backend VLLM)
    that no field sets.
    `instances` is the number of instances of the model in one server; each has GPUs of its own.
    """

    backend: Backend
    version: str | None = None
    image: str | None = None
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    pull_secrets: tuple[Reference, ...] = ()
    batch_scheduler_policy: Literal["GuaranteedNoEvict", "MaxUtilization"] = "GuaranteedNoEvict"
    chunked_context: bool | None = None
    parameters: dict[str, str] = Field(default_factory=dict)
    arguments: dict[str, Any] = Field(default_factory=dict)
    frontend: Literal["Triton", "TrtllmServe", "VllmServe"] = "Triton"
    instances: int = 1


Severity = Literal["Enforce", "Warn", "Disabled"]


class Checks(Value):
    """What to do if a check finds a problem; `Warn` only reports it in the condition."""

    tokenizer: Severity = "Enforce"
    vocabulary: Severity = "Enforce"
    special_tokens: Severity = "Enforce"
    heads: Severity = "Enforce"
    # Warn without a value; backends whose engines need a converter do not have the field.
    architecture: Severity | None = None
    chat_template: Severity = "Warn"
    context_length: Severity = "Warn"
    memory: Severity = "Enforce"
    image: Severity = "Enforce"


AccessMode = Literal["ReadWriteOnce", "ReadWriteMany"]


class Storage(Value):
    """The one volume of the resource: an existing claim, or a size for a claim of its own."""

    existing_claim: str | None = None
    size: str | None = None
    storage_class_name: str | None = None
    access_mode: AccessMode | None = None


class Spec(Value):
    """The whole desired state."""

    runtime: Runtime
    target: ModelSpec
    speculation: Speculation
    storage: Storage
    gpu: GpuClass = GpuClass()
    checks: Checks = Checks()
    verification: Verification = Verification()
    benchmark: Benchmark = Benchmark()
    fetch: Fetch = Fetch()
    build: Build = Build()
    jobs: Jobs = Jobs()
    serving: Serving = Serving()
    networking: Networking = Networking()
    pods: Pods = Pods()
    metadata: ChildMetadata = ChildMetadata()
    suspend: bool = False
    revision_history_limit: int | None = None


class Metadata(Value):
    """The identity of a resource."""

    name: str
    namespace: str
    uid: str
    generation: int = 1
    deletion_timestamp: str | None = None


class SpeculativeModel(Value):
    """One resource: its identity, its desired state, and the status as last written."""

    metadata: Metadata
    spec: Spec
    status: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def parse(cls, body: dict[str, Any]) -> Self:
        """The typed resource of an API object; raises `pydantic.ValidationError`."""
        return cls.model_validate(body)

    @property
    def available(self) -> bool:
        """Whether the resource was available when the status was last written."""
        conditions = self.status.get("conditions", [])
        return any(c["type"] == Type.AVAILABLE and c["status"] == "True" for c in conditions)

    @property
    def access_mode(self) -> AccessMode:
        """The access mode of a new claim: ReadWriteMany only where pods need several nodes.

        Most storage classes have only ReadWriteOnce, and a claim with another mode stays pending.
        """
        serving = self.spec.serving
        scaled = serving.scaling.max_replicas if serving.scaling else 0
        own = (self.own_replicas(role) or 0 for role in self.models)
        largest = max(serving.replicas, scaled, *own)
        products = {self.gpu(role).product for role in self.models}
        many = largest > 1 or serving.nodes_per_replica > 1 or len(products) > 1
        return self.spec.storage.access_mode or ("ReadWriteMany" if many else "ReadWriteOnce")

    @property
    def models(self) -> dict[str, ModelSpec]:
        """The models that the resource serves by role, target first."""
        models = {"target": self.spec.target}
        for block in self.spec.speculation.blocks.values():
            models |= block.models
        return models

    @property
    def separate_servers(self) -> bool:
        """Whether each model has a server of its own."""
        one_server = support(self.spec.runtime.backend).one_server
        return self.spec.speculation.block.separate_servers and not one_server

    def gpu(self, role: str) -> GpuClass:
        """The GPU that the engine of a role is built and served on."""
        own = self.spec.speculation.block.servers.get(role)
        return own.gpu if own is not None and own.gpu is not None else self.spec.gpu

    def gpu_field(self, role: str) -> str:
        """The path of the field that sets the GPU of a role."""
        own = self.spec.speculation.block.servers.get(role)
        if own is None or own.gpu is None:
            return "spec.gpu"
        return f"spec.speculation.draftTarget.{role}Server.gpu"

    def own_replicas(self, role: str) -> int | None:
        """The number of pods that the spec sets for the server of this role alone; else None."""
        own = self.spec.speculation.block.servers.get(role)
        return None if own is None else own.replicas

    def replicas(self, role: str = "target") -> int:
        """The desired replicas of a server now; 0 for every server if the target has none."""
        serving = 0 if self.spec.suspend else self.spec.serving.replicas
        own = self.own_replicas(role)
        return serving if own is None or serving == 0 else own

    @property
    def sources(self) -> dict[str, Source]:
        """Everything that has to be fetched, by role.

        `target`, `draft`, `heads` are checkpoints; `target-engine`, `draft-engine` are prebuilt
        engine directories.
        """
        models = self.models
        sources = {role: spec.source for role, spec in models.items()}
        sources |= self.spec.speculation.block.draft_sources
        heads = self.spec.speculation.heads
        if heads is not None:
            sources["heads"] = heads
        for role, spec in models.items():
            if spec.engine.prebuilt is not None:
                sources[f"{role}-engine"] = spec.engine.prebuilt
        return sources


def explain(error: ValidationError) -> str:
    """Return one sentence: the first invalid field with its value, and the number of others."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    value = first.get("input")
    shown = "" if isinstance(value, dict | list) or value is None else f" (got {value!r:.100})"
    more = f", and {error.error_count() - 1} more" if error.error_count() > 1 else ""
    return f"{field}: {first['msg']}{shown}{more}"
