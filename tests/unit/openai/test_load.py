"""The load that the endpoint publishes for routers, from pages of Triton's metrics port."""

import asyncio

import pytest

from specdec.images.openai.load import read
from specdec.images.openai.metrics import Metrics
from specdec.images.openai.settings import EndpointSettings
from specdec.servers.kind import kind
from specdec.servers.totals import Load
from unit.openai.fake_backend import FakeBackend, endpoint
from unit.openai.in_process import client

MODEL = "tensorrt_llm_bls"
PAGE = f"""\
specdec_requests_running{{model="{MODEL}",version="1"}} 2
nv_inference_pending_request_count{{model="{MODEL}",version="1"}} 9
"""


def test_page_has_no_gauge_for_what_is_unknown() -> None:
    metrics = Metrics()
    value = metrics.registry.get_sample_value
    labels = {"model_name": "llama", "engine": "0"}
    metrics.set_load(Load(3, 2, 0.5), "llama")
    assert value("vllm:num_requests_waiting", labels) == 3
    assert value("vllm:num_requests_running", labels) == 2
    assert value("vllm:kv_cache_usage_perc", labels) == 0.5
    metrics.set_load(Load(1, 0, None), "llama")
    assert value("vllm:num_requests_running", labels) == 0
    assert value("vllm:kv_cache_usage_perc", labels) is None
    metrics.set_load(None, "llama")
    assert value("vllm:num_requests_waiting", labels) is None


async def _reply(body: bytes) -> Load | None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        return await read(f"127.0.0.1:{port}", kind("bls").counters, MODEL, 0)


async def test_server_reports_its_load_over_http() -> None:
    body = b"HTTP/1.0 200 OK\r\n\r\n" + PAGE.encode()
    assert await _reply(body) == Load(9, 2, None)


@pytest.mark.parametrize(
    "body",
    [
        b"HTTP/1.0 404 Not Found\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n\xff\xfe",
        b'HTTP/1.0 200 OK\r\n\r\nnv_inference_pending_request_count{model="a"} many\n',
        b"HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\na",
    ],
)
async def test_load_is_unknown_if_the_page_cannot_be_read(body: bytes) -> None:
    assert await _reply(body) is None


async def test_own_metrics_are_served_without_those_of_the_server() -> None:
    # No process listens on this port.
    served = endpoint(FakeBackend(), EndpointSettings("llama", metrics_url="127.0.0.1:1"))
    async with client(served) as http:
        page = (await http.get("/metrics")).text
    assert "specdec_openai_requests_in_flight 0.0" in page
    assert "vllm:num_requests_waiting{" not in page
