"""Condition reasons, by the condition that the documentation lists them under."""

from specdec.api.reasons.accepted import AcceptedReason
from specdec.api.reasons.available import AvailableReason
from specdec.api.reasons.benchmark import BenchmarkReason
from specdec.api.reasons.common import CommonReason
from specdec.api.reasons.compatibility import CompatibilityReason
from specdec.api.reasons.definition import Health, Reason, Severity
from specdec.api.reasons.deprecated import DeprecatedReason
from specdec.api.reasons.engine import EngineReason
from specdec.api.reasons.fetch import FetchReason
from specdec.api.reasons.memory import MemoryReason
from specdec.api.reasons.ready import ReadyReason
from specdec.api.reasons.repository import RepositoryReason
from specdec.api.reasons.retention import RetentionReason
from specdec.api.reasons.route import RouteReason
from specdec.api.reasons.scaling import ScalingReason
from specdec.api.reasons.storage import StorageReason
from specdec.api.reasons.verification import VerificationReason

# In the order of the pipeline.
GROUPS: tuple[type[Reason], ...] = (
    CommonReason,
    AcceptedReason,
    StorageReason,
    FetchReason,
    CompatibilityReason,
    MemoryReason,
    EngineReason,
    RepositoryReason,
    AvailableReason,
    VerificationReason,
    BenchmarkReason,
    ScalingReason,
    RouteReason,
    DeprecatedReason,
    RetentionReason,
    ReadyReason,
)
REASONS: tuple[Reason, ...] = tuple(reason for group in GROUPS for reason in group)
_BY_TEXT = {str(reason): reason for reason in REASONS}
__all__ = [
    "GROUPS",
    "REASONS",
    "AcceptedReason",
    "AvailableReason",
    "BenchmarkReason",
    "CommonReason",
    "CompatibilityReason",
    "DeprecatedReason",
    "EngineReason",
    "FetchReason",
    "Health",
    "MemoryReason",
    "ReadyReason",
    "Reason",
    "RepositoryReason",
    "RetentionReason",
    "RouteReason",
    "ScalingReason",
    "Severity",
    "StorageReason",
    "VerificationReason",
    "having",
    "parse",
]


def parse(text: str) -> Reason | None:
    """Return the reason with this text; None if this release has no such reason.

    The text may come from a Job or from the status of a resource, written by another release.
    """
    return _BY_TEXT.get(text)


def having(severity: Severity) -> frozenset[Reason]:
    """Return all reasons of one severity."""
    return frozenset(reason for reason in REASONS if reason.severity is severity)
