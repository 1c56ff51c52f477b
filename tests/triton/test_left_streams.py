"""Clients of the OpenAI endpoint that leave their streams do not harm the server."""

import http.client
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from cluster.processes import DEADLINE_SECONDS, until
from specdec.images.serving import streams
from specdec.triton.model_names import BLS, ENSEMBLE, TARGET
from specdec.triton.repository import RepositoryPlan
from support.openai_endpoint import MODEL, OpenAIEndpoint
from support.shipped_pair import PAIR
from support.triton_server import Server
from triton.conftest import Serve

pytestmark = pytest.mark.nightly

_CLIENTS, _REQUESTS = 8, 12
# A whole answer takes the engine at least as many steps of a round.
_TOKENS, _STEPS = 400, 80
_BODY = {"model": MODEL, "prompt": "def f(", "max_tokens": _TOKENS, "stream": True}
_EMPTY = "requests of clients that left are still in flight"
_PATHS = pytest.mark.parametrize("model", [BLS, ENSEMBLE])


def leave(port: int, count: int) -> None:
    """Send requests one after the other, and leave each one after its first piece."""
    for _ in range(count):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request(
            "POST", "/v1/completions", json.dumps(_BODY), {"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        assert response.status == http.client.OK
        assert response.readline().startswith(b"data: ")
        connection.close()


def idle(server: Server) -> bool:
    """Return whether no request is in flight."""
    gauges = ("specdec_engine_requests", "specdec_requests_in_flight")
    return sum(map(server.metric, gauges)) == 0


@pytest.fixture
def slow_plan(draft_target_plan: RepositoryPlan) -> RepositoryPlan:
    """Return a plan whose target needs 20 ms for a step."""
    return replace(draft_target_plan, target=replace(draft_target_plan.target, step_latency_ms=20))


@_PATHS
def test_request_of_a_client_that_left_is_stopped_in_the_engine(
    serve: Serve, slow_plan: RepositoryPlan, model: str
) -> None:
    with (
        serve(slow_plan) as server,
        OpenAIEndpoint(server.url, PAIR / "target", ["--model", model]) as endpoint,
    ):
        leave(endpoint.port, 1)
        until(lambda: idle(server), lambda: _EMPTY)
        steps = re.findall(
            rf'specdec_engine_steps_total{{model="{TARGET}".*}} (\S+)', server.get_metrics()
        )
        assert sum(map(float, steps)) < _STEPS


@_PATHS
def test_clients_that_leave_neither_crash_nor_block_the_server(
    serve: Serve, slow_plan: RepositoryPlan, model: str
) -> None:
    """With this delay, cancelled streams crash or block the server (`test_cancelled_streams`)."""
    delay = {"TRITONSERVER_DELAY_GRPC_RESPONSE": "20"}
    with (
        serve(slow_plan, env=delay) as server,
        OpenAIEndpoint(server.url, PAIR / "target", ["--model", model]) as endpoint,
        ThreadPoolExecutor(_CLIENTS) as clients,
    ):
        for done in [clients.submit(leave, endpoint.port, _REQUESTS) for _ in range(_CLIENTS)]:
            done.result()
        until(lambda: idle(server), lambda: _EMPTY)
        assert server.status() is None
        assert streams.problem(server.grpc_port, DEADLINE_SECONDS) == ""
