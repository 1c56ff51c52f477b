"""`SpeculativeModel` as frozen typed values, parsed once at the boundary.

The CustomResourceDefinition in `crds/` is the source of the API; a test holds this module to it.
Pod-shaped fields stay plain dictionaries: they are passed through to the children unread.
"""

from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

GROUP = "specdec.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "SpeculativeModel"
PLURAL = "speculativemodels"

PodShaped = dict[str, Any]


class Value(BaseModel):
    """Base of every part of the spec: camelCase on the wire, immutable, newer fields ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore"
    )


class Backend(StrEnum):
    """What serves the engines."""

    TENSORRT = "TensorRT"
    PYTORCH = "PyTorch"
    REFERENCE = "Reference"


class Method(StrEnum):
    """How draft tokens come about; every method but None has a block of its own."""

    NONE = "None"
    DRAFT_TARGET = "DraftTarget"
    LOOKAHEAD = "Lookahead"


class SecretKey(Value):
    """One key of a Secret in the resource's own namespace."""

    name: str
    key: str = "token"


class HuggingFaceSource(Value):
    """A repository of the Hugging Face hub at one revision."""

    repo: str
    revision: str = "main"
    endpoint: str | None = None
    token_secret_ref: SecretKey | None = None


class PvcSource(Value):
    """A checkpoint directory on an existing claim."""

    claim_name: str
    path: str


class Source(Value):
    """Where a checkpoint comes from: exactly one of the members."""

    hugging_face: HuggingFaceSource | None = None
    pvc: PvcSource | None = None


class Parallelism(Value):
    """How one engine is split over GPUs."""

    tensor: int = 1
    pipeline: int = 1


class Gpu(Value):
    """GPU ordinals inside the pod; empty means derived."""

    device_ids: tuple[int, ...] = ()


class Limits(Value):
    """Build-time ceilings of an engine, in requests and tokens."""

    max_batch_size: int = 8
    max_input_len: int = 1024
    max_seq_len: int = 2048
    max_num_tokens: int = 8192


class KvCache(Value):
    """Run-time budget of the key/value cache."""

    max_tokens: int | None = None
    memory_percent: int | None = None
    reuse: bool = True


class ModelSpec(Value):
    """One model, target or draft."""

    source: Source
    dtype: Literal["Auto", "Float32", "Float16", "BFloat16"] = "Auto"
    parallelism: Parallelism = Parallelism()
    gpu: Gpu = Gpu()
    limits: Limits = Limits()
    kv_cache: KvCache = KvCache()


class DraftTarget(Value):
    """A small model proposes, the target verifies."""

    draft: ModelSpec


class Lookahead(Value):
    """Window W, n-gram size N and verification set G of lookahead decoding."""

    window_size: int = 7
    ngram_size: int = 7
    verification_set_size: int = 7


class Speculation(Value):
    """Union by `method`; `maxDraftTokens` is built in, `draftTokens` is the server's default."""

    method: Method
    max_draft_tokens: int | None = None
    draft_tokens: int | None = None
    draft_target: DraftTarget | None = None
    lookahead: Lookahead | None = None


class Reference(Value):
    """A name in the resource's own namespace."""

    name: str


class Runtime(Value):
    """Which server, in which version and image; absent values come from the support matrix."""

    backend: Backend
    version: str | None = None
    image: str | None = None
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    pull_secrets: tuple[Reference, ...] = ()


class Build(Value):
    """How engine-build Jobs run."""

    backoff_limit: int = 2
    active_deadline_seconds: int = 14400
    resources: PodShaped = Field(default_factory=dict)
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[PodShaped, ...] = ()
    affinity: PodShaped = Field(default_factory=dict)


class Storage(Value):
    """The one volume of the resource: an existing claim, or a size for a claim of its own."""

    existing_claim: str | None = None
    size: str | None = None
    storage_class_name: str | None = None
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany"] = "ReadWriteMany"


class Probes(Value):
    """How long a server may take to load its models."""

    startup_budget_seconds: int = 1800


class Drain(Value):
    """How long a server may take to finish what it accepted."""

    timeout_seconds: int = 120


class Serving(Value):
    """The serving pods."""

    replicas: int = 1
    streaming: bool = True
    resources: PodShaped = Field(default_factory=dict)
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[PodShaped, ...] = ()
    affinity: PodShaped = Field(default_factory=dict)
    shared_memory: str = "2Gi"
    probes: Probes = Probes()
    drain: Drain = Drain()


class Spec(Value):
    """The whole desired state."""

    runtime: Runtime
    target: ModelSpec
    speculation: Speculation
    storage: Storage
    build: Build = Build()
    serving: Serving = Serving()
    suspend: bool = False


class Metadata(Value):
    """The identity of a resource."""

    name: str
    namespace: str
    uid: str
    generation: int = 1
    deletion_timestamp: str | None = None


class SpeculativeModel(Value):
    """One resource: who it is, what it wants, what was said of it before."""

    metadata: Metadata
    spec: Spec
    status: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def parse(cls, body: dict[str, Any]) -> Self:
        """The typed resource of an API object; raises `pydantic.ValidationError`."""
        return cls.model_validate(body)

    @property
    def models(self) -> dict[str, ModelSpec]:
        """The models it serves by role, target first."""
        block = self.spec.speculation.draft_target
        return {"target": self.spec.target} | ({"draft": block.draft} if block else {})


def explain(error: ValidationError) -> str:
    """One sentence of what cannot be read: the first field with its value, and how many more."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    value = first.get("input")
    shown = "" if isinstance(value, dict | list) or value is None else f" (got {value!r:.100})"
    more = f", and {error.error_count() - 1} more" if error.error_count() > 1 else ""
    return f"{field}: {first['msg']}{shown}{more}"
