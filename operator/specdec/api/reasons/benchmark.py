"""Reasons of `BenchmarkCompleted`: the benchmark Job."""

from specdec.api.condition_types import Type
from specdec.api.reasons.definition import Reason, Section

_SECTION = Section(Type.BENCHMARK_COMPLETED)


class BenchmarkReason(Reason):
    """Reasons of `BenchmarkCompleted`."""

    COMPLETED = _SECTION.progress(
        "Completed", "the benchmark ran; the message has its result and the path of the report"
    )
    MEASURING = _SECTION.progress("Measuring", "the benchmark Job is running", "wait")
    BASELINE_MISSING = _SECTION.blocked(
        "BaselineMissing",
        "the resource in `spec.benchmark.baseline.modelRef` does not exist, or has `serving.tls`",
        "correct the name, or create that resource in this namespace without TLS",
    )
    BASELINE_WAITS = _SECTION.progress(
        "BaselineWaits",
        "the resource in `spec.benchmark.baseline.modelRef` is not Ready",
        "wait, or check the conditions of that resource",
    )
    ERROR_RATE_HIGH = _SECTION.blocked(
        "ErrorRateHigh",
        "the share of failed requests exceeded `spec.benchmark.maxErrorPercent`",
        "read the first error in the message; the report has the measured values",
    )
    BENCHMARK_FAILED = _SECTION.failed(
        "BenchmarkFailed",
        "the Job failed for another reason",
        "read the end of its log in the message, then delete the Job",
    )
