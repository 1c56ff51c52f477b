"""The types of conditions, and which of them block `Ready`."""

from enum import StrEnum


class Type(StrEnum):
    """Condition types in the order of the pipeline; `Ready` summarizes those that block it."""

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
    DEPRECATED = "Deprecated"
    VOLUME_PRUNED = "VolumePruned"
    READY = "Ready"


# Measured while the resource serves. Those of VERIFIED block Ready with mode Gate; the benchmark
# never does.
VERIFIED = (Type.SPECULATION_ACTIVE, Type.OUTPUT_EQUIVALENT, Type.SPECULATION_EFFECTIVE)
MEASURED = (*VERIFIED, Type.BENCHMARK_COMPLETED)
# Present only where the spec uses the feature, or something deprecated; they never block Ready.
OPTIONAL = frozenset({Type.SCALING_READY, Type.ROUTE_READY, Type.DEPRECATED, Type.VOLUME_PRUNED})
