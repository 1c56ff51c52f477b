"""The end of a tritonserver whose model runs vLLM."""

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from cluster.processes import DEADLINE_SECONDS
from specdec.triton import launch
from specdec.triton.layout import PLAIN
from specdec.triton.model_names import VLLM
from support.programs import local
from support.triton_client import Arrays, ask, stream, text
from support.triton_server import Server
from support.vllm_tests import installed
from support.vllm_triton import DRAFTS, inputs, repository, serving

CLIENTS = 4
# Of the 15 s that a pod has after its requests have ended.
SECONDS = 10.0
pytestmark = [pytest.mark.slow, pytest.mark.triton, pytest.mark.vllm(gibibytes=2)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(installed(), repository(DRAFTS), tmp_path) as running:
        yield running


def stop(server: Server) -> float:
    """Run the hook, then send SIGTERM, as the kubelet does; return the seconds of the second."""
    hook = launch.pre_stop(
        PLAIN,
        linger_seconds=0,
        exit_timeout_seconds=DEADLINE_SECONDS,
        metrics_port=server.metrics_port,
    )
    subprocess.run(local(hook), check=True)
    begun = time.monotonic()
    assert server.stop() == 0
    return time.monotonic() - begun


def test_requests_end_before_the_server_which_ends_without_a_crash(server: Server) -> None:
    long = inputs(240, {"ignore_eos": True}, stream=True, return_finish_reason=True)
    expected = text(ask(server.url, VLLM, **long))
    with ExitStack() as stack, ThreadPoolExecutor(CLIENTS + 1) as threads:
        streams = [stack.enter_context(stream(server.url, VLLM, **long)) for _ in range(CLIENTS)]
        replies = [iter(each) for each in streams]
        texts = [text([next(each)]) for each in replies]
        seconds = threads.submit(stop, server)
        answers: list[list[Arrays]] = list(threads.map(list, replies))
        # An open stream keeps the model of its last request (seen with Triton 2.51).
        stack.close()
        assert seconds.result() < SECONDS
    assert [first + text(rest) for first, rest in zip(texts, answers, strict=True)] == (
        [expected] * CLIENTS
    )
    assert {answer[-1]["finish_reason"][0] for answer in answers} == {b"length"}
    log = server.log()
    assert "Segfault encountered" not in log
    assert "Traceback" not in log
