"""Counters in the format of Triton's metrics."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from typing_extensions import override

from cluster.processes import DEADLINE_SECONDS
from specdec.client import RefusedError, UnreachableError, metrics
from specdec.servers.kind import kinds
from specdec.servers.totals import SourceTotals, SpeculationTotals

TEXT = """\
# HELP specdec_rounds_total Rounds
# TYPE specdec_rounds_total counter
specdec_rounds_total{model="tensorrt_llm_bls",version="1"} 12
# HELP specdec_draft_tokens_total Draft tokens
# TYPE specdec_draft_tokens_total counter
specdec_draft_tokens_total{model="tensorrt_llm_bls",instance="0"} 30
specdec_draft_tokens_total{model="tensorrt_llm_bls",instance="1"} 18
# TYPE specdec_accepted_tokens_total counter
specdec_accepted_tokens_total 20
# TYPE nv_inference_count counter
nv_inference_count{model="ensemble"} 4
# TYPE nv_energy_consumption counter
nv_energy_consumption{gpu_uuid="GPU-1"} 1000.25
nv_energy_consumption{gpu_uuid="GPU-2"} 500.25
"""


class Handler(BaseHTTPRequestHandler):
    body = TEXT

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/metrics" else 404)
        self.end_headers()
        self.wfile.write(self.body.encode())

    @override
    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join(DEADLINE_SECONDS)
    server.server_close()


def test_samples_of_a_family_add_up_and_absent_families_are_zero(url: str) -> None:
    assert metrics.read(url) == SpeculationTotals(rounds=12, drafted=48, accepted=20, generated=0)


def test_counters_have_the_names_of_triton(url: str) -> None:
    totals = metrics.totals(url)
    assert totals["nv_energy_consumption"] == 1500.5
    assert totals["specdec_draft_tokens_total"] == 48


def test_difference_of_totals_is_that_of_each_counter() -> None:
    assert SpeculationTotals(5, 20, 12, 17) - SpeculationTotals(2, 8, 3, 5) == SpeculationTotals(
        3, 12, 9, 12
    )


def by_source(**counts: tuple[int, int]) -> str:
    lines = ["# TYPE specdec_draft_tokens_by_source_total counter"]
    kinds = ("specdec_draft_tokens_by_source_total", "specdec_accepted_tokens_by_source_total")
    for index, kind in enumerate(kinds):
        lines += [f'{kind}{{source="{name}"}} {count[index]}' for name, count in counts.items()]
    return "\n".join((*lines, ""))


def test_draft_tokens_are_counted_by_source() -> None:
    before = metrics.parse(by_source(model=(8, 6), lookup=(5, 5), memory=(0, 0)))
    assert before.sources == (SourceTotals("model", 8, 6), SourceTotals("lookup", 5, 5))
    after = metrics.parse(by_source(model=(8, 6), lookup=(9, 8), memory=(4, 1)))
    assert (after - before).sources == (
        SourceTotals("lookup", 4, 3),
        SourceTotals("memory", 4, 1),
    )


def test_failed_connection_to_metrics_is_reported() -> None:
    with pytest.raises(UnreachableError, match="no metrics at 127"):
        metrics.read("127.0.0.1:9")


def test_other_content_than_metrics_is_reported(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handler, "body", "specdec_rounds_total{ 12")
    with pytest.raises(RefusedError, match="not in the Prometheus format"):
        metrics.read(url)


PER_REQUEST = """\
# TYPE trtllm_spec_decode_drafted_tokens_total counter
trtllm_spec_decode_drafted_tokens_total{model_name="m",token_position="0"} 12.0
trtllm_spec_decode_drafted_tokens_total{model_name="m",token_position="1"} 8.0
# TYPE trtllm_spec_decode_accepted_tokens_total counter
trtllm_spec_decode_accepted_tokens_total{model_name="m",token_position="0"} 9.0
# TYPE trtllm_generation_tokens_total counter
trtllm_generation_tokens_total{model_name="m"} 40.0
"""
PER_ITERATION = """\
# TYPE trtllm_spec_decode_num_draft_tokens_total counter
trtllm_spec_decode_num_draft_tokens_total{model_name="m"} 20.0
# TYPE trtllm_spec_decode_num_accepted_tokens_total counter
trtllm_spec_decode_num_accepted_tokens_total{model_name="m"} 9.0
"""
UNCOUNTED = PER_ITERATION.replace("20.0", "0.0").replace("9.0", "0.0")


@pytest.mark.parametrize(
    ("page", "drafted", "accepted"),
    [
        (PER_REQUEST, 20, 9),
        (PER_ITERATION, 20, 9),
        (PER_REQUEST + PER_ITERATION, 20, 9),
        (PER_REQUEST + UNCOUNTED, 20, 9),
        (UNCOUNTED, 0, 0),
    ],
)
def test_both_spellings_of_trtllm_serve_are_read_and_never_added(
    page: str, drafted: int, accepted: int
) -> None:
    samples = metrics.summed(page)
    totals = metrics.speculation(samples)
    assert (totals.drafted, totals.accepted) == (drafted, accepted)
    assert [kind.name for kind in kinds() if kind.counters.counts(samples)] == ["trtllm_serve"]


def test_a_server_without_these_counters_counts_no_drafts() -> None:
    samples = metrics.summed("# TYPE a counter\na_total 1.0\n")
    assert not any(kind.counters.counts(samples) for kind in kinds())
