"""The fields of `spec.verification` and `spec.benchmark`.

Both measure a service: whether speculation is active, keeps the output, and is faster.
"""

from typing import Literal

from specdec.api.value import Reference, Value


class ConfigMapKey(Value):
    """One key of a ConfigMap in the resource's own namespace."""

    name: str
    key: str = "prompts.jsonl"


class Verification(Value):
    """A short measurement after every change of the serving revision.

    With mode `Gate`, Ready waits until it succeeds. `minAcceptancePercent` is the percentage of
    accepted draft tokens. `minSpeedupPercent` is the speed relative to the target alone; 100 is
    equally fast. A minimum of 0 disables that check. Another value of `run` measures again.
    """

    mode: Literal["Disabled", "Report", "Gate"] = "Report"
    prompts_config_map_ref: ConfigMapKey | None = None
    max_prompts: int = 16
    max_tokens: int = 32
    min_acceptance_percent: int = 0
    min_speedup_percent: int = 100
    timeout_seconds: int = 600
    run: str | None = None


class Baseline(Value):
    """The resource of the same namespace that a benchmark compares with."""

    model_ref: Reference


class Benchmark(Value):
    """A longer measurement at several numbers of clients, with and without speculation.

    Without `baseline`, both sides are requests to the service itself. `concurrency` lists the
    numbers of clients; if it is empty, `CONCURRENCY` is used. `requests` is the number of requests
    at each number of clients, with speculation and again without.
    """

    mode: Literal["Disabled", "OnReady"] = "Disabled"
    baseline: Baseline | None = None
    prompts_config_map_ref: ConfigMapKey | None = None
    concurrency: tuple[int, ...] = ()
    requests: int = 50
    output_tokens: int = 64
    max_error_percent: int = 1
    timeout_seconds: int = 3600
    run: str | None = None

    @property
    def baseline_name(self) -> str | None:
        """The name of the resource to compare with; None for the service itself."""
        return self.baseline.model_ref.name if self.baseline else None

    @property
    def levels(self) -> tuple[int, ...]:
        """The numbers of concurrent clients; each is measured by itself."""
        return self.concurrency or CONCURRENCY


CONCURRENCY = (1, 8)
