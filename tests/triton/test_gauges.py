"""The gauges of running and waiting requests are exact, before and after the requests end."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from cluster.processes import until
from specdec.triton.repository import RepositoryPlan
from support.openai_endpoint import MODEL, OpenAIEndpoint
from support.shipped_pair import PAIR
from support.triton_client import RefusedError, Stream, ask, stream
from support.triton_server import Server
from triton.conftest import Serve

BLS = "tensorrt_llm_bls"
SLOTS = 2
# More than the BLS holds: two requests on its threads, eight in its queue, and a batch of sixteen
# that Triton has passed to it.
MANY = 40
# About twelve seconds with the latency below, so that the test cancels requests before their end.
LONG = {"text_input": "def f(", "max_tokens": 400, "num_draft_tokens": 0, "end_id": -1}


@pytest.fixture(scope="module")
def server(serve: Serve, draft_target_plan: RepositoryPlan) -> Iterator[Server]:
    """Yield a server with slow engines, whose BLS has two slots."""
    target = replace(draft_target_plan.target, step_latency_ms=30.0)
    plan = replace(draft_target_plan, bls_max_in_flight=SLOTS, target=target)
    with serve(plan) as running:
        yield running


@pytest.fixture
def requests(server: Server) -> Iterator[Callable[[int], list[Stream]]]:
    """Yield a function that starts this many long requests; cancel them after the test."""
    with ExitStack() as opened:
        yield lambda count: [
            opened.enter_context(stream(server.url, BLS, stream=True, **LONG))
            for _ in range(count)
        ]
    holds(server, 0, 0)


def holds(server: Server, running: int, waiting: int) -> None:
    """Wait until the BLS reports these numbers of running and waiting requests."""
    seen: dict[str, float] = {}

    def reached() -> bool:
        names = ("running", "waiting", "in_flight")
        seen.update({name: server.metric(f"specdec_requests_{name}") for name in names})
        return (seen["running"], seen["waiting"]) == (running, waiting)

    until(reached, lambda: f"not {running} running and {waiting} waiting: {seen}")


def test_gauges_count_requests_beyond_the_slots(
    server: Server, requests: Callable[[int], list[Stream]]
) -> None:
    holds(server, 0, 0)
    first = requests(1)
    holds(server, 1, 0)
    others = requests(6)
    holds(server, SLOTS, 5)
    # When a running request is cancelled, a waiting request takes its slot.
    first[0].cancel()
    holds(server, SLOTS, 4)
    for request in others:
        request.cancel()
    holds(server, 0, 0)


def test_every_prompt_of_a_request_is_counted(server: Server) -> None:
    values = {"text_input": [["def f("], ["def g("], ["def h("], ["def i("]]}
    rows = {name: [[value]] * 4 for name, value in LONG.items() if name != "text_input"}
    with stream(server.url, BLS, stream=[[True]] * 4, **values, **rows):
        holds(server, SLOTS, 2)
    holds(server, 0, 0)


def test_refused_requests_leave_no_count(server: Server) -> None:
    for values in ({"max_tokens": 0}, {"max_tokens": 4, "beam_width": 3}):
        with pytest.raises(RefusedError):
            ask(server.url, BLS, text_input="def f(", stream=True, **values)
    assert server.metric("specdec_requests_running") == 0
    assert server.metric("specdec_requests_waiting") == 0
    ask(server.url, BLS, text_input="def f(", stream=True, max_tokens=2)
    holds(server, 0, 0)


def test_endpoint_adds_the_queue_of_the_server(
    server: Server, requests: Callable[[int], list[Stream]]
) -> None:
    options = ["--metrics-url", f"127.0.0.1:{server.metrics_port}"]
    with OpenAIEndpoint(server.url, PAIR / "target", options) as endpoint:

        def shows(running: int, waiting: int) -> None:
            labels = f'{{engine="0",model_name="{MODEL}"}}'
            lines = [
                f"vllm:num_requests_running{labels} {float(running)}",
                f"vllm:num_requests_waiting{labels} {float(waiting)}",
            ]
            page = ""

            def reached() -> bool:
                nonlocal page
                page = endpoint.get("/metrics")
                return all(line in page.splitlines() for line in lines)

            until(reached, lambda: f"not {lines} in {page}")

        shows(0, 0)
        requests(SLOTS + MANY)
        shows(SLOTS, MANY)
        assert server.metric("specdec_requests_waiting") < MANY
        # The Reference engine has no gauge of its cache.
        assert "vllm:kv_cache_usage_perc{" not in endpoint.get("/metrics")
