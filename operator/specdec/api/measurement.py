"""What is measured of a service: whether speculation is active, lossless and faster."""

from typing import Literal

from specdec.api.value import Value


class ConfigMapKey(Value):
    """One key of a ConfigMap in the resource's own namespace."""

    name: str
    key: str = "prompts.jsonl"


class Verification(Value):
    """A short measurement after every change of what serves.

    `Gate` holds Ready until it went well. Percentages: of draft tokens accepted, and of the
    target's own speed (100 is as fast as without speculation); 0 judges nothing. Another `run`
    measures again.
    """

    mode: Literal["Disabled", "Report", "Gate"] = "Report"
    prompts_config_map_ref: ConfigMapKey | None = None
    max_prompts: int = 16
    max_tokens: int = 32
    min_acceptance_percent: int = 0
    min_speedup_percent: int = 100
    timeout_seconds: int = 600
    run: str | None = None


class Benchmark(Value):
    """A longer measurement, with and without speculation, at several numbers of clients.

    `concurrency` empty means `CONCURRENCY`; `requests` are of each level and arm.
    """

    mode: Literal["Disabled", "OnReady"] = "Disabled"
    prompts_config_map_ref: ConfigMapKey | None = None
    concurrency: tuple[int, ...] = ()
    requests: int = 50
    output_tokens: int = 64
    max_error_percent: int = 1
    timeout_seconds: int = 3600
    run: str | None = None

    @property
    def levels(self) -> tuple[int, ...]:
        """Clients at a time, one measurement each."""
        return self.concurrency or CONCURRENCY


CONCURRENCY = (1, 8)
