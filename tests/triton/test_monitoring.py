"""Every metric of alerts and dashboard is one that a server or the operator really exports."""

from __future__ import annotations

import re

from prometheus_client import generate_latest

from chart.monitoring import expressions, metrics, values
from specdec.api.conditions import Condition, Type
from specdec.metrics import API_REQUESTS, ERRORS, MODELS, RECONCILES
from triton.asking import ask
from triton.server import Server

# Of the TensorRT-LLM backend and of GPUs: no CPU server has them. The TensorRT-LLM backend's own
# documentation names family, label and values.
ON_GPUS = {
    "nv_trt_llm_kv_cache_block_metrics": {"kv_cache_block_type": {"fraction"}},
    "nv_trt_llm_request_metrics": {"request_type": {"active", "waiting"}},
    "nv_gpu_memory_used_bytes": {},
    "nv_gpu_memory_total_bytes": {},
}
_SAMPLE = re.compile(r"^([a-z_]\w*)(?:\{(.*)\})? \S+", re.MULTILINE)


def exported(page: str) -> dict[str, set[str]]:
    """The labels of every metric of a page in Prometheus text."""
    found: dict[str, set[str]] = {}
    for name, labels in _SAMPLE.findall(page):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


def operators() -> dict[str, set[str]]:
    """What the operator exports once it has met everything."""
    ERRORS.labels("bug")
    RECONCILES.labels("ok")
    API_REQUESTS.labels("get", "Job", 200)
    key = ("ns", "seen-by-monitoring")
    ready = Condition(Type.READY, "True", "Serving")
    MODELS.see(key, [ready], [{"role": "target", "state": "Building", "percent": 40}])
    try:
        page = generate_latest().decode()
    finally:
        MODELS.forget(key)
    assert 'specdec_model_engine_percent{model_name="seen-by-monitoring",' in page
    return exported(page)


def test_alerts_and_dashboard_read_what_is_exported(server: Server) -> None:
    ask(server.url, "tensorrt_llm_bls", text_input="def f(", max_tokens=4, stream=False)
    # Context logits need the target alone: the first answer without speculation.
    ask(
        server.url,
        "tensorrt_llm_bls",
        text_input="def f(",
        max_tokens=4,
        stream=False,
        return_context_logits=True,
    )
    here = exported(server.get_metrics()) | operators()
    asked: set[str] = set()
    for where, text in expressions():
        asked |= metrics(text)
        assert metrics(text), where
    asked -= {name for name in asked if ":" in name}
    assert asked - ON_GPUS.keys() <= here.keys(), asked - ON_GPUS.keys() - here.keys()
    assert ON_GPUS.keys() <= asked, "a metric that nothing reads"
    assert not ON_GPUS.keys() & here.keys(), "it can be seen after all"

    assert "reason" in here["specdec_fallback_total"]
    assert {"model", "version"} <= here["nv_inference_pending_request_count"]
    assert values("model") <= {"tensorrt_llm_bls", "ensemble", "tensorrt_llm.*"}
    for labels in ON_GPUS.values():
        for label, wanted in labels.items():
            assert values(label) == wanted
