"""An engine whose queue is full: the error asks clients to send the request again later."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import tritonclient.grpc as grpc

from cluster.processes import DEADLINE_SECONDS
from specdec.triton.repository import RepositoryPlan, render
from support.triton_client import request_inputs
from support.triton_server import Server
from triton.conftest import Serve

BLS = "tensorrt_llm_bls"


def outcome(server: Server, number: int) -> tuple[str, str]:
    """Send a request; return status and message of its error, both empty if it was answered."""
    values = {"text_input": f"def f{number}():\n", "max_tokens": 8}
    with grpc.InferenceServerClient(server.url) as client:
        try:
            client.infer(BLS, request_inputs(values), client_timeout=DEADLINE_SECONDS)
        except grpc.InferenceServerException as error:
            return str(error.status()), str(error.message())
    return "", ""


def test_a_full_queue_of_the_engine_is_unavailable(
    serve: Serve, draft_target_plan: RepositoryPlan
) -> None:
    plan = replace(
        draft_target_plan,
        decoupled=False,
        max_batch_size=1,
        bls_max_in_flight=32,
        # Steps are slow, so that other requests must wait or are refused.
        target=replace(draft_target_plan.target, step_latency_ms=50.0),
    )
    files = render(plan)
    # Only the queue of the BLS has a limit. An engine refuses only if far more requests wait.
    config = "tensorrt_llm/config.pbtxt"
    assert "max_queue_size: 0" in files[config]
    files[config] = files[config].replace("max_queue_size: 0", "max_queue_size: 1")
    with serve(files) as server, ThreadPoolExecutor(32) as pool:
        outcomes = list(pool.map(lambda number: outcome(server, number), range(32)))
        refused = [ended for ended in outcomes if ended[0]]
        assert refused
        assert len(refused) < len(outcomes)
        for status, sentence in refused:
            assert status == "StatusCode.UNAVAILABLE"
            assert sentence.startswith("tensorrt_llm: ")
            assert sentence.endswith(": send the request again later")
        assert outcome(server, 0) == ("", "")
