"""The counts and the load of each kind of server, from pages of metrics."""

from __future__ import annotations

import pytest

from specdec.client.metrics import parse
from specdec.servers.kind import kind
from specdec.servers.totals import Load

BLS = kind("bls").counters
BLS_PAGE = """\
# TYPE specdec_requests_running gauge
specdec_requests_running{model="tensorrt_llm_bls",version="1"} 2
specdec_requests_waiting{model="tensorrt_llm_bls",version="1"} 11
nv_inference_pending_request_count{model="tensorrt_llm_bls",version="1"} 9
nv_inference_pending_request_count{model="tensorrt_llm",version="1"} 5
nv_inference_pending_request_count{model="tensorrt_llm_draft",version="1"} 7
"""
ENGINES = """\
nv_trt_llm_request_metrics{model="tensorrt_llm_draft",request_type="waiting",version="1"} 30
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} 3
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="scheduled",version="1"} 4
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"} 7
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="tensorrt_llm_draft"} 0.9
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="tensorrt_llm"} 0.25
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="tensorrt_llm"} 25
"""
QUEUES = """\
nv_inference_pending_request_count{model="ensemble",version="1"} 0
nv_inference_pending_request_count{model="preprocessing",version="1"} 1
nv_inference_pending_request_count{model="tensorrt_llm",version="1"} 2
"""


@pytest.mark.parametrize(
    ("page", "model", "expected"),
    [
        (BLS_PAGE, "tensorrt_llm_bls", Load(20, 2, None)),
        # Calls of the BLS to its engines are not counted as requests of clients.
        (BLS_PAGE + ENGINES, "tensorrt_llm_bls", Load(20, 2, 0.25)),
        (QUEUES + ENGINES, "ensemble", Load(6, 4, 0.25)),
        (QUEUES, "ensemble", Load(3, 5, None)),
        ("", "ensemble", Load(0, 8, None)),
    ],
)
def test_load_is_that_of_the_model_and_the_target(page: str, model: str, expected: Load) -> None:
    assert BLS.load(page, model, in_flight=8) == expected


def test_requests_never_run_in_negative_numbers() -> None:
    assert BLS.load(QUEUES, "ensemble", in_flight=1) == Load(3, 0, None)


def test_load_of_the_llm_api_is_that_of_its_queue_and_its_engine() -> None:
    page = 'nv_inference_pending_request_count{model="tensorrt_llm",version="1"} 2\n'
    counters = kind("llm_api").counters
    assert counters.load(page, "tensorrt_llm", in_flight=8) == Load(2, 6, None)
    assert counters.load(page + ENGINES, "tensorrt_llm", in_flight=8) == Load(5, 4, 0.25)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("", Load(0, 3, None)),
        ('trtllm_num_requests_running{a=""} x\n', Load(0, 3, None)),
        (
            'trtllm_num_requests_running{a=""} 2.0\ntrtllm_num_requests_waiting{a=""} 5.0\n'
            "trtllm_kv_cache_utilization 0.25\n",
            Load(5, 2, 0.25),
        ),
    ],
)
def test_load_of_trtllm_serve_is_in_its_own_metrics(page: str, expected: Load) -> None:
    assert kind("trtllm_serve").counters.load(page, "m", 3) == expected


@pytest.mark.parametrize(
    ("name", "release", "expected"),
    [
        ("bls", "0.18.0", False),
        ("bls", "1.2.1", True),
        ("llm_api", "1.2.1", True),
        ("trtllm_serve", "1.2.1", False),
    ],
)
def test_answers_have_counts_in_some_kinds_and_releases(
    name: str, release: str, expected: bool
) -> None:
    assert kind(name).counters.in_answers(release) == expected


VLLM_PAGE = """\
vllm:num_requests_running{engine="0",model="vllm_model",model_name="m",version="1"} 2.0
vllm:num_requests_waiting{engine="0",model="vllm_model",model_name="m",version="1"} 5.0
vllm:kv_cache_usage_perc{engine="0",model="vllm_model",model_name="m",version="1"} 0.25
nv_inference_pending_request_count{model="vllm_model",version="1"} 1
"""


def test_load_of_vllm_is_in_its_own_metrics_and_in_tritons_queue() -> None:
    assert kind("vllm_serve").counters.load(VLLM_PAGE, "m", 3) == Load(5, 2, 0.25)
    assert kind("vllm").counters.load(VLLM_PAGE, "vllm_model", 3) == Load(6, 2, 0.25)


def test_counters_of_two_kinds_with_one_engine_count_once() -> None:
    page = "".join(
        f'# TYPE {name} counter\n{name}_total{{engine="0"}} {value}\n'
        for name, value in {
            "vllm:spec_decode_num_drafts": 3.0,
            "vllm:spec_decode_num_draft_tokens": 12.0,
            "vllm:spec_decode_num_accepted_tokens": 7.0,
            "vllm:generation_tokens": 10.0,
        }.items()
    )
    totals = parse(page)
    assert (totals.rounds, totals.drafted, totals.accepted, totals.generated) == (3, 12, 7, 10)


@pytest.mark.parametrize(("version", "expected"), [("0.27.1", False), ("0.32.0", True)])
def test_answers_of_vllms_server_have_counts_from_a_version_on(
    version: str, expected: bool
) -> None:
    assert kind("vllm_serve").counters.in_answers(version) == expected
    assert kind("vllm").counters.in_answers(version)
