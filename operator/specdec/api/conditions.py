"""Conditions: what a stage says of itself, and how it is merged into what was said before."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

Status = Literal["True", "False", "Unknown"]


class Type(StrEnum):
    """Condition types in the order of the pipeline; `Ready` sums them up."""

    ACCEPTED = "Accepted"
    STORAGE_READY = "StorageReady"
    MODELS_FETCHED = "ModelsFetched"
    COMPATIBLE = "Compatible"
    MEMORY_FITS = "MemoryFits"
    ENGINES_READY = "EnginesReady"
    REPOSITORY_READY = "RepositoryReady"
    AVAILABLE = "Available"
    SCALING_READY = "ScalingReady"
    ROUTE_READY = "RouteReady"
    READY = "Ready"


# Present only where the resource asks for it; a service that lacks it serves all the same.
OPTIONAL = frozenset({Type.SCALING_READY, Type.ROUTE_READY})


# Reasons that pass by themselves or by someone else's hand: worth a warning, not a failure.
BLOCKED = frozenset(
    {
        "ClaimLost",
        "ClaimNotFound",
        "ContainerConfigError",
        "CrashLoop",
        "FitsWithWarnings",
        "GatewayApiMissing",
        "ImagePullFailed",
        "KedaMissing",
        "LeaderWorkerSetMissing",
        "MetricMissing",
        "NetworkError",
        "OutOfMemory",
        "RolloutStuck",
        "RouteNotAccepted",
        "ScalerFailed",
        "SecretMissing",
        "StartupTimeout",
        "Unschedulable",
    }
)
# Reasons that stay until somebody changes the resource, a checkpoint or deletes a failed Job.
FAILED = frozenset(
    {
        "AuthFailed",
        "BuildFailed",
        "Cancelled",
        "ChatTemplateMismatch",
        "CheckpointCorrupt",
        "ContextTooShort",
        "DeadlineExceeded",
        "EngineMismatch",
        "EngineMissing",
        "FetchFailed",
        "HeadsCountMismatch",
        "HeadsHiddenSizeMismatch",
        "HeadsLayersMismatch",
        "HeadsMethodMismatch",
        "HeadsVocabSizeMismatch",
        "ImageMissing",
        "InsufficientGpuMemory",
        "Internal",
        "InvalidDevices",
        "InvalidSpec",
        "PaddedVocabMismatch",
        "PlanInvalid",
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
        "Fetched",
        "Fetching",
        "Fits",
        "NotDeployed",
        "NotNeeded",
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
        "Starting",
        "SufficientGpuMemory",
        "Suspended",
        "TightGpuMemory",
        "Unchecked",
        "UnknownGpu",
        "UnknownSize",
        "Valid",
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


@dataclass(frozen=True)
class Transition:
    """A condition whose status or reason changed: it becomes one event."""

    condition: Condition
    warning: bool


def merge(
    old: Iterable[Mapping[str, Any]], new: Iterable[Condition], generation: int, now: str
) -> list[dict[str, Any]]:
    """The condition list to write: `lastTransitionTime` moves only when a status flips.

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
                "message": condition.message,
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
    """What is worth an event: a changed status or reason. Reasons in `bad` are warnings."""
    before = {item["type"]: (item["status"], item["reason"]) for item in old}
    changed = [c for c in new if before.get(c.type) != (c.status, c.reason)]
    return [Transition(c, c.reason in bad) for c in changed if c.status != "Unknown"]
