"""Where one kind of server counts draft tokens, and how its metrics show its load."""

import re
from collections.abc import Mapping, Sequence

from specdec.servers.totals import Load, SourceTotals, SpeculationTotals

# Of every server of the LLM API.
LLM_API_UNCOUNTED = (
    "the server counts draft tokens in its metrics from TensorRT-LLM 1.3 on, and these can be "
    "read only if spec.serving.replicas is 1"
)
_SOURCES = ("model", "lookup", "memory")


class Counters:
    """The counters of one kind of server: a value without state.

    Attributes:
        drafts: metrics of drafted and accepted tokens, in each spelling that a release may have;
            empty if the metrics have none.
        rounds, generated: metrics of rounds and of generated tokens; empty without one.
        by_source: metrics of drafted and accepted tokens with the label `source`, or None.
        gauges: metrics of running requests, of waiting ones, and of the share of the cache that is
            in use; empty without them.
        settles_seconds: how long after an answer the metrics may still grow by it.
        engine: the Triton model whose stream has a response for each step. Its steps show the
            drafts that neither answers nor metrics count. Empty without one.
        uncounted: why an answer may have no counts, with the resolution; a part of a sentence.
    """

    drafts: tuple[tuple[str, str], ...] = ()
    rounds: str = ""
    generated: str = ""
    by_source: tuple[str, str] | None = None
    gauges: tuple[str, ...] = ()
    settles_seconds: float = 0.0
    engine: str = ""
    uncounted: str = "the server counts no draft tokens"

    @property
    def metrics(self) -> bool:
        """Whether the metrics of this kind count draft tokens."""
        return bool(self.drafts)

    def in_answers(self, version: str) -> bool:
        """Whether the answers of a TensorRT-LLM release have the counts of draft tokens."""
        return False

    def counts(self, samples: Mapping[str, float]) -> bool:
        """Whether a server has a counter of draft tokens; `samples` are of `client.metrics`."""
        return any(drafted in samples for drafted, _ in self.drafts)

    def speculation(self, samples: Mapping[str, float]) -> SpeculationTotals:
        """The totals among the samples of a server's metrics; a missing counter is 0."""

        def total(name: str) -> int:
            return int(samples.get(name, 0.0))

        # A release may have several spellings, and then each counts all tokens, or stays at 0.
        pairs = [(total(drafted), total(accepted)) for drafted, accepted in self.drafts]
        drafted, accepted = max(pairs, default=(0, 0))
        sources = [
            SourceTotals(source, *(total(f"{name} {source}") for name in self.by_source or ()))
            for source in _SOURCES
        ]
        return SpeculationTotals(
            total(self.rounds),
            drafted,
            accepted,
            total(self.generated),
            tuple(source for source in sources if source.drafted),
        )

    def load(self, page: str, model: str, in_flight: int) -> Load:
        """The load that a page of metrics reports.

        Args:
            page: in the Prometheus text format.
            model: that clients call.
            in_flight: requests that are being answered. They replace a number of running requests
                that the page lacks. A page with a value that is no number has no values.
        """
        try:
            values = _values(page, self.gauges)
        except ValueError:
            values = {}
        running, waiting, cache = (values.get(name, ()) for name in self.gauges or ("", "", ""))
        return Load(
            int(sum(waiting)),
            int(sum(running) if running else in_flight),
            max(cache, default=None),
        )


def _values(page: str, names: Sequence[str]) -> dict[str, list[float]]:
    """The values of metrics, with any labels."""
    values: dict[str, list[float]] = {}
    if names:
        sample = rf"^({'|'.join(names)})(?:\{{[^}}]*\}})? (\S+)$"
        for name, value in re.findall(sample, page, re.MULTILINE):
            values.setdefault(name, []).append(float(value))
    return values
