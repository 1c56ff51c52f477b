"""Every query of the dashboard has a value on metrics pages of real servers.

Prometheus' own engine evaluates the queries on two pages of each server, with requests in between.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from chart.monitoring import expressions, panels
from chart.test_monitoring import run_promtool
from cluster import binaries
from cluster.processes import until
from cluster.progress import report
from specdec.api.conditions import Condition, Type
from specdec.api.reasons import EngineReason, VerificationReason
from specdec.cluster import metrics
from support.openai_endpoint import MODEL, OpenAIEndpoint
from support.shipped_pair import PAIR
from support.triton_client import RefusedError, ask
from support.triton_server import Server

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]
# Panels without a value here, and why.
EMPTY = {
    "Key/value cache in use": "a metric of the TensorRT-LLM backend",
    "Sequences in the engines": "a metric of the TensorRT-LLM backend",
    "GPU memory in use": "a metric of GPUs",
}
OF_MODEL = {"model_namespace": "lab", "model_name": "pair", "pod": "pair-0"}


@pytest.fixture
def endpoint(server: Server) -> Iterator[OpenAIEndpoint]:
    with OpenAIEndpoint(server.url, PAIR / "target") as running:
        yield running


def series(page: str, added: dict[str, str]) -> Series:
    """Return the samples of a page, with the labels that a PodMonitor adds."""
    # The parser appends `_total` to the names of Triton's counters.
    return {
        (
            sample.name if sample.name in page else sample.name.removesuffix("_total"),
            frozenset((sample.labels | added).items()),
        ): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if math.isfinite(sample.value)
    }


def use(server: Server, endpoint: OpenAIEndpoint) -> None:
    """Send requests of every kind: with drafts, without, refused, and to the OpenAI endpoint."""
    body = {"text_input": "def f(", "max_tokens": 8, "stream": False}
    ask(server.url, "tensorrt_llm_bls", **body)
    ask(server.url, "ensemble", **body)
    ask(server.url, "tensorrt_llm_bls", **body, return_context_logits=True)
    with pytest.raises(RefusedError):
        ask(server.url, "tensorrt_llm_bls", text_input="def f(", max_tokens=-1, stream=False)
    with openai.OpenAI(base_url=endpoint.url, api_key="none", max_retries=0) as client:
        answer = client.completions.create(model=MODEL, prompt="def f(", max_tokens=8, stream=True)
        assert list(answer)
    metrics.RECONCILES.labels("ok").inc()
    metrics.API_REQUESTS.labels("get", "Job", 200).inc()
    metrics.RECONCILE_SECONDS.observe(0.2)


def pages(server: Server, endpoint: OpenAIEndpoint) -> Series:
    return {
        **series(server.get_metrics(), OF_MODEL),
        **series(endpoint.get("/metrics"), OF_MODEL),
        **series(generate_latest().decode(), {"pod": "specdec-operator-0"}),
    }


def counted(server: Server, endpoint: OpenAIEndpoint, first: Series) -> Series:
    """Return later pages, once Triton has counted the answers, which it does with a delay."""
    last: Series = {}

    def clients(page: Series, name: str) -> float:
        model = ("model", "tensorrt_llm_bls")
        return sum(
            value for (own, labels), value in page.items() if own == name and model in labels
        )

    def all_grew() -> bool:
        last.update(pages(server, endpoint))
        names = ("nv_inference_request_success", "nv_inference_request_failure")
        return all(clients(last, name) > clients(first, name) for name in names)

    until(all_grew, lambda: f"not all is counted: {last}")
    return last


def test_every_panel_has_a_value(server: Server, endpoint: OpenAIEndpoint, tmp_path: Path) -> None:
    conditions = [
        Condition(Type.READY, "False", EngineReason.BUILDING),
        Condition(Type.OUTPUT_EQUIVALENT, "True", VerificationReason.EQUIVALENT),
        Condition(Type.SPECULATION_ACTIVE, "True", VerificationReason.DRAFT_TOKENS_OBSERVED),
    ]
    building = {"role": "target", "state": "Building", "percent": 40}
    status = {"engines": [building], "speculation": {"speedupPercent": 152}}
    metrics.MODELS.set(("lab", "pair"), conditions, status)
    try:
        use(server, endpoint)
        first = pages(server, endpoint)
        use(server, endpoint)
        last = counted(server, endpoint, first)
    finally:
        metrics.MODELS.forget(("lab", "pair"))
    given = [
        {
            "series": name + "{" + ", ".join(f"{k}={json.dumps(v)}" for k, v in labels) + "}",
            "values": f"{first.get((name, labels), 0.0):f} {value:f} {value:f}",
        }
        for (name, labels), value in last.items()
        if name.startswith(("specdec_", "nv_"))
    ]
    titles = {panel["title"] for panel in panels()}
    assert titles >= EMPTY.keys()
    # A comparison with a number excludes NaN, the value of a quantile without samples.
    queries = [
        {
            "expr": f"count(({text}) > -Inf) > bool 0",
            "eval_time": "2m",
            "exp_samples": [] if title in EMPTY else [{"labels": "{}", "value": 1}],
        }
        for title, text in expressions()
        if title in titles
    ]
    assert len(queries) >= len(titles)
    binaries.ensure(["promtool"], report)
    tests = tmp_path / "tests.yaml"
    case = {"interval": "1m", "input_series": given, "promql_expr_test": queries}
    tests.write_text(yaml.safe_dump({"rule_files": [], "tests": [case]}))
    run_promtool(binaries.path("promtool"), "test", "rules", tests)
