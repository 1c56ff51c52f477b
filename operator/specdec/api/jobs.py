"""`spec.build` and `spec.jobs`: how Jobs run, with and without GPUs."""

from pydantic import Field

from specdec.api.operations import ResourceClaim
from specdec.api.value import Affinity, PodShaped, Resources, Value


class Build(Value):
    """How engine-build Jobs run."""

    backoff_limit: int = 2
    active_deadline_seconds: int = 14400
    resources: Resources = Field(default_factory=dict)
    shared_memory: str | None = None
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[PodShaped, ...] = ()
    affinity: Affinity = Field(default_factory=dict)
    resource_claims: tuple[ResourceClaim, ...] = ()
    priority_class_name: str | None = None
    runtime_class_name: str | None = None


class JobKind(Value):
    """The settings of one kind of Jobs alone."""

    resources: Resources = Field(default_factory=dict)


class Jobs(Value):
    """How the Jobs without GPUs run; `measurement` are those of verification and benchmark."""

    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[PodShaped, ...] = ()
    affinity: Affinity = Field(default_factory=dict)
    priority_class_name: str | None = None
    fetch: JobKind = JobKind()
    publish: JobKind = JobKind()
    measurement: JobKind = JobKind()
