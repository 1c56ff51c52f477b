"""Read the speculation counters of a served model from a server's metrics endpoint.

Verification, the benchmark and the demo use it. Counters that a server lacks are 0.
"""

from collections.abc import Mapping
from http.client import HTTPException
from urllib.error import URLError
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from specdec.client.errors import RefusedError, UnreachableError
from specdec.servers.kind import kinds
from specdec.servers.totals import SourceTotals, SpeculationTotals

__all__ = ["SourceTotals", "SpeculationTotals", "parse", "read", "speculation", "summed", "totals"]

_SECONDS = 5.0


def read(url: str) -> SpeculationTotals:
    """The totals of the server whose metrics are at `url` (`host:port`); see `totals`."""
    return speculation(totals(url))


def totals(url: str) -> dict[str, float]:
    """Every sample of the metrics at `url` (`host:port`), summed over its label sets.

    A counter appears twice: with the suffix `_total`, and without it.

    Raises:
        UnreachableError: the connection failed.
        RefusedError: the response is not in the Prometheus text format.
    """
    try:
        with urlopen(f"http://{url}/metrics", timeout=_SECONDS) as reply:
            text = reply.read().decode()
        return summed(text)
    except (URLError, HTTPException, OSError) as error:
        raise UnreachableError(f"no metrics at {url} ({error}); check the address") from error
    except ValueError as error:
        raise RefusedError(
            f"the response of {url} is not in the Prometheus format ({error}); "
            "give the port of Triton's metrics"
        ) from error


def parse(text: str) -> SpeculationTotals:
    """The totals in a Prometheus exposition; a missing counter is 0."""
    return speculation(summed(text))


def summed(text: str) -> dict[str, float]:
    """Every sample of a Prometheus exposition, as `totals` has them; raises ValueError.

    A sample with the label `source` also counts under its name and source, as in `name lookup`.
    """
    totals_by_name: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            totals_by_name[sample.name] = totals_by_name.get(sample.name, 0.0) + sample.value
            if source := sample.labels.get("source"):
                name = f"{sample.name} {source}"
                totals_by_name[name] = totals_by_name.get(name, 0.0) + sample.value
            # The parser adds `_total` to every counter, and many of Triton's names lack it.
            if family.type == "counter" and sample.name == f"{family.name}_total":
                totals_by_name[family.name] = totals_by_name.get(family.name, 0.0) + sample.value
    return totals_by_name


def speculation(totals: Mapping[str, float]) -> SpeculationTotals:
    """The speculation counters of every kind of server among the totals of a server's metrics."""
    # Two kinds of server with the same engine have the same counters.
    distinct = {kind.counters.drafts: kind.counters for kind in kinds()}
    read = (counters.speculation(totals) for counters in distinct.values())
    return sum(read, start=SpeculationTotals())
