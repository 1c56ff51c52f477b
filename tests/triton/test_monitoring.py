"""Alerts and dashboard read only metrics that a server, its endpoint or the operator exports."""

import json
import re
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from typer.testing import CliRunner

from chart.monitoring import expressions, metrics, values
from cluster.processes import until
from specdec.api.conditions import Condition, Type
from specdec.api.reasons import ReadyReason
from specdec.client.metrics import summed
from specdec.cluster.metrics import API_REQUESTS, ERRORS, MODELS, RECONCILES
from specdec.images.openai.metrics import Metrics
from specdec.tools.cli.app import app
from support.fake_api import Api, kubeconfig, pod, proxied, serving
from support.triton_client import ask
from support.triton_server import Server

# Metrics of the TensorRT-LLM backend and of GPUs, which no CPU server has. Family, label and
# values come from the documentation of the TensorRT-LLM backend.
ON_GPUS = {
    "nv_trt_llm_kv_cache_block_metrics": {"kv_cache_block_type": {"fraction"}},
    "nv_trt_llm_request_metrics": {"request_type": {"active", "waiting"}},
    "nv_gpu_memory_used_bytes": {},
    "nv_gpu_memory_total_bytes": {},
}
_SAMPLE = re.compile(r"^([a-z_]\w*)(?:\{(.*)\})? \S+", re.MULTILINE)


def exported(page: str) -> dict[str, set[str]]:
    """Return the labels of every metric on a page of Prometheus text."""
    metrics_of_page: dict[str, set[str]] = {}
    for name, labels in _SAMPLE.findall(page):
        metrics_of_page.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return metrics_of_page


def operators() -> dict[str, set[str]]:
    """Return what the operator exports once all its metrics have samples."""
    ERRORS.labels("bug")
    RECONCILES.labels("ok")
    API_REQUESTS.labels("get", "Job", 200)
    key = ("ns", "seen-by-monitoring")
    ready = Condition(Type.READY, "True", ReadyReason.SERVING)
    building = {"role": "target", "state": "Building", "percent": 40}
    MODELS.set(key, [ready], {"engines": [building], "speculation": {"speedupPercent": 152}})
    try:
        page = generate_latest().decode()
    finally:
        MODELS.forget(key)
    assert 'specdec_model_engine_percent{model_name="seen-by-monitoring",' in page
    return exported(page)


def endpoints() -> dict[str, set[str]]:
    """Return what the OpenAI endpoint exports."""
    return exported(generate_latest(Metrics().registry).decode())


def test_alerts_and_dashboard_read_what_is_exported(server: Server) -> None:
    ask(server.url, "tensorrt_llm_bls", text_input="def f(", max_tokens=4, stream=False)
    # Context logits need a target-only run: this request is the first fallback.
    ask(
        server.url,
        "tensorrt_llm_bls",
        text_input="def f(",
        max_tokens=4,
        stream=False,
        return_context_logits=True,
    )
    here = exported(server.get_metrics()) | operators() | endpoints()
    queried: set[str] = set()
    for where, text in expressions():
        queried |= metrics(text)
        assert metrics(text), where
    queried -= {name for name in queried if ":" in name}
    assert queried - ON_GPUS.keys() <= here.keys(), queried - ON_GPUS.keys() - here.keys()
    assert ON_GPUS.keys() <= queried, "a metric that nothing reads"
    assert not ON_GPUS.keys() & here.keys(), "it can be seen after all"

    assert "reason" in here["specdec_fallback_total"]
    assert {"model", "version"} <= here["nv_inference_pending_request_count"]
    assert values("model") <= {"tensorrt_llm_bls", "ensemble", "tensorrt_llm.*"}
    for labels in ON_GPUS.values():
        for label, expected in labels.items():
            assert values(label) == expected


def test_top_reads_what_a_server_exports(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server answers three requests between the two readings; one of them is a fallback."""
    # The second page arrives only after the answers, so it needs more time.
    monkeypatch.setattr("specdec.cluster.LOG_TIMEOUT", 120.0)
    prompt = {"text_input": "def f(", "max_tokens": 16, "stream": False}
    seen: list[dict[str, float]] = []

    def page(_: str) -> str:
        if seen:
            for model in ("tensorrt_llm_bls", "ensemble"):
                ask(server.url, model, **prompt)
            ask(server.url, "tensorrt_llm_bls", **prompt, return_context_logits=True)
        text = ""

        def counted() -> bool:
            """Return whether all is counted: Triton counts an answer after its client has it."""
            nonlocal text
            text = server.get_metrics()
            grown = request_count(text) - (seen[0]["requests"] if seen else request_count(text))
            return grown == 3 * len(seen) and summed(text)["specdec_requests_in_flight"] == 0

        until(counted, lambda: f"not all is counted: {text}")
        seen.append(summed(text) | {"requests": request_count(text)})
        return text

    pods = "/api/v1/namespaces/lab/pods"
    api = Api(objects={pods: [pod("pair-0", "server")], proxied("pair-0"): page})
    with serving(api) as address:
        login = kubeconfig(tmp_path / "config", address)
        arguments = ["top", "pair", "--once", "--interval", "1", "--json"]
        result = CliRunner().invoke(app, arguments, env={"KUBECONFIG": str(login)})
    assert result.exit_code == 0, result.output
    [row] = json.loads(result.stdout)["pods"]
    did = {name: value - seen[0].get(name, 0) for name, value in seen[1].items()}
    accepted, drafted = did["specdec_accepted_tokens_total"], did["specdec_draft_tokens_total"]
    assert accepted > 0
    assert row["acceptance_percent"] == 100 * accepted / drafted
    assert row["tokens_per_round"] == 1 + accepted / did["specdec_rounds_total"]
    assert row["fallbacks"] == did["specdec_fallback_total"] == 1
    assert (row["draft_length"], row["in_flight"], row["waiting"]) == (4, 0, 0)
    # The engines answered many more requests than the clients sent.
    tokens = did["specdec_generated_tokens_total"]
    assert row["tokens_per_second"] / row["requests_per_second"] == pytest.approx(tokens / 3)
    assert row["kv_percent"] is None, "the Reference backend has no such metric"


def request_count(page: str) -> float:
    """Return the number of client requests that Triton has counted."""
    models = ("tensorrt_llm_bls", "ensemble")
    heads = tuple(f'nv_inference_request_success{{model="{model}"' for model in models)
    counters = (line for line in page.splitlines() if line.startswith(heads))
    return sum(float(line.rpartition(" ")[2]) for line in counters)
