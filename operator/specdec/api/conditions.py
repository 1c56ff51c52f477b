"""Conditions: what a stage says of itself, and how it is merged into what was said before."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from specdec.api.text import cut, line

Status = Literal["True", "False", "Unknown"]


class Type(StrEnum):
    """Condition types in the order of the pipeline; `Ready` sums up those that hold it back."""

    ACCEPTED = "Accepted"
    STORAGE_READY = "StorageReady"
    MODELS_FETCHED = "ModelsFetched"
    COMPATIBLE = "Compatible"
    MEMORY_FITS = "MemoryFits"
    ENGINES_READY = "EnginesReady"
    REPOSITORY_READY = "RepositoryReady"
    AVAILABLE = "Available"
    SPECULATION_ACTIVE = "SpeculationActive"
    OUTPUT_EQUIVALENT = "OutputEquivalent"
    SPECULATION_EFFECTIVE = "SpeculationEffective"
    BENCHMARK_COMPLETED = "BenchmarkCompleted"
    SCALING_READY = "ScalingReady"
    ROUTE_READY = "RouteReady"
    READY = "Ready"


# What is measured once it serves; none of it holds Ready back unless the spec says so.
VERIFIED = (Type.SPECULATION_ACTIVE, Type.OUTPUT_EQUIVALENT, Type.SPECULATION_EFFECTIVE)
MEASURED = (*VERIFIED, Type.BENCHMARK_COMPLETED)
# Present only where the resource asks for it; a service that lacks it serves all the same.
OPTIONAL = frozenset({Type.SCALING_READY, Type.ROUTE_READY})
# Reasons that pass by themselves or by someone else's hand: worth a warning, not a failure.
BLOCKED = frozenset(
    {
        "BelowFixLevel",
        "CheckpointDamaged",
        "CheckpointMissing",
        "ClaimLost",
        "ClaimNotFound",
        "ContainerConfigError",
        "CrashLoop",
        "Diverged",
        "EngineDamaged",
        "EngineMissing",
        "ErrorRateHigh",
        "FitsWithWarnings",
        "GatewayApiMissing",
        "ImagePullFailed",
        "KedaMissing",
        "LeaderWorkerSetMissing",
        "LowAcceptance",
        "MetricMissing",
        "NetworkError",
        "NoDraftTokensObserved",
        "NoEndpoints",
        "OutOfMemory",
        "RolloutStuck",
        "RouteNotAccepted",
        "ScalerFailed",
        "SecretMissing",
        "ServerUnreachable",
        "SlowerThanBaseline",
        "SplitTargetMissing",
        "StartupTimeout",
        "Unschedulable",
        "VolumeDamaged",
    }
)
# Reasons that stay until somebody changes the resource, a checkpoint or deletes a failed Job.
FAILED = frozenset(
    {
        "AddressRefused",
        "AuthFailed",
        "BenchmarkFailed",
        "BuildFailed",
        "Cancelled",
        "ChatTemplateMismatch",
        "CheckpointCorrupt",
        "ContextTooShort",
        "DeadlineExceeded",
        "EngineMismatch",
        "FetchFailed",
        "HeadsCountMismatch",
        "HeadsHiddenSizeMismatch",
        "HeadsLayersMismatch",
        "HeadsMethodMismatch",
        "HeadsVocabSizeMismatch",
        "ImageMissing",
        "InsufficientGpuMemory",
        "Internal",
        "InternalError",
        "InvalidDevices",
        "InvalidResult",
        "InvalidSpec",
        "LibraryMismatch",
        "PaddedVocabMismatch",
        "PlanInvalid",
        "PromptsInvalid",
        "PublishFailed",
        "Rejected",
        "RevisionNotFound",
        "SourceNotFound",
        "SpecialTokensMismatch",
        "TargetArchitectureMismatch",
        "TokenizerMismatch",
        "UnsupportedArchitecture",
        "UnsupportedBackend",
        "UnsupportedCheckpoint",
        "UnsupportedGpu",
        "UnsupportedMethod",
        "UnsupportedVersion",
        "VerificationFailed",
        "VocabSizeMismatch",
        "VolumeFull",
        "VolumeUnusable",
    }
)
# Every reason that becomes a Warning event.
PROBLEMS = BLOCKED | FAILED
# Reasons that say how far things are.
PROGRESS = frozenset(
    {
        "Bound",
        "Building",
        "Built",
        "ClaimPending",
        "Completed",
        "DraftTokensObserved",
        "Effective",
        "Equivalent",
        "Fetched",
        "Fetching",
        "Fits",
        "Measuring",
        "MethodNone",
        "NotComparable",
        "NotDeployed",
        "NotNeeded",
        "NotRun",
        "PodsReady",
        "Published",
        "Publishing",
        "Queued",
        "RouteAccepted",
        "RoutePending",
        "ScalerActive",
        "ScalerDisabled",
        "ScalerStarting",
        "Serving",
        "SplitWaits",
        "Stale",
        "Starting",
        "SufficientGpuMemory",
        "Suspended",
        "TightGpuMemory",
        "Unchecked",
        "UnknownGpu",
        "UnknownSize",
        "Valid",
        "Verifying",
        "Waiting",
    }
)


@dataclass(frozen=True)
class Condition:
    """One statement; `reason` is a CamelCase word of the documented vocabulary."""

    type: Type
    status: Status
    reason: str
    message: str = ""

    def __post_init__(self) -> None:
        """Make the message plain: much of it was written by pods and servers of others."""
        object.__setattr__(self, "message", line(self.message))


@dataclass(frozen=True)
class Transition:
    """A condition whose status or reason changed: it becomes one event."""

    condition: Condition
    warning: bool


def merge(
    old: Iterable[Mapping[str, Any]], new: Iterable[Condition], generation: int, now: str
) -> list[dict[str, Any]]:
    """The condition list to write: `lastTransitionTime` moves only when a status flips.

    Messages are cut to what people read: one above the schema's limit would fail the whole status.

    `now` is an RFC 3339 time; every entry carries `generation` as its observedGeneration.
    """
    before = {item["type"]: item for item in old}
    merged = []
    for condition in new:
        last = before.get(condition.type, {})
        kept = last.get("status") == condition.status and "lastTransitionTime" in last
        merged.append(
            {
                "type": str(condition.type),
                "status": condition.status,
                "reason": condition.reason,
                "message": cut(condition.message),
                "observedGeneration": generation,
                "lastTransitionTime": last["lastTransitionTime"] if kept else now,
            }
        )
    return merged


def transitions(
    old: Iterable[Mapping[str, Any]],
    new: Iterable[Condition],
    bad: frozenset[str] = PROBLEMS,
) -> list[Transition]:
    """What is worth an event: a changed status or reason. Reasons in `bad` are warnings.

    What is not known is worth one where the reason is a bad one.
    """
    before = {item["type"]: (item["status"], item["reason"]) for item in old}
    changed = [c for c in new if before.get(c.type) != (c.status, c.reason)]
    told = (c for c in changed if c.status != "Unknown" or c.reason in bad)
    return [Transition(c, c.reason in bad) for c in told]
