"""A sample of malformed requests: the server survives, answers as before and leaks nothing."""

import os
import signal
from contextlib import suppress

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2_grpc

from campaigns import battery
from campaigns.good import GOOD, request_of
from cluster.processes import DEADLINE_SECONDS, until
from specdec.triton.repository import RepositoryPlan
from triton.conftest import Serve

# Each run sends the same sample of all models; the campaign sends more kinds.
KINDS = {"streaming": 300, "unary": 150}
# The crash needs several rejected streams: it came after 8 streams, and after about 10.
_STREAMS = 200


@pytest.mark.nightly
@pytest.mark.parametrize("layout", KINDS)
def test_malformed_requests_harm_no_other(layout: str) -> None:
    every = battery.chosen(layout, KINDS[layout])
    with battery.served(layout) as server:
        tally = battery.run(server, layout, every)
        assert tally.wrong == []
        assert tally.ends.total() == len(every)
        assert min(tally.ends["answered"], tally.ends["refused"]) > len(every) // 20
        assert tally.memory < battery.GROWTH
        assert tally.shared < battery.GROWTH


def test_the_battery_has_thousands_of_kinds_of_every_model() -> None:
    for layout in battery.LAYOUTS:
        every = battery.chosen(layout)
        assert len(every) > 5_000
        assert len({(kind.model, kind.route, kind.body, kind.headers) for kind in every}) == len(
            every
        )
        assert len({kind.name for kind in every}) == len(every)
        assert {kind.route for kind in every} >= {"grpc", "infer", "generate", "generate_stream"}


@pytest.mark.nightly
def test_status_codes_of_rejected_streams_crash_this_release_of_triton(
    serve: Serve, draft_target_plan: RepositoryPlan
) -> None:
    """Triton 2.51 uses a stream after it has ended, if the client asks for status codes.

    If this test fails on another release, that release has the fix: report it in docs/security.md.
    """
    model = "tensorrt_llm_bls"
    request = request_of(model, {**GOOD[model], "max_tokens": np.zeros((1, 1), np.int32)})
    codes = (("triton_grpc_error", "true"),)
    with (
        serve(draft_target_plan) as server,
        grpc.insecure_channel(server.url) as channel,
    ):
        models = server.processes()[1:]
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for _ in range(_STREAMS):
            with suppress(grpc.RpcError):
                list(
                    stub.ModelStreamInfer(
                        iter([request]), metadata=codes, timeout=DEADLINE_SECONDS
                    )
                )
            if not server.processes()[1:]:
                break
        until(lambda: not server.processes()[1:], lambda: "the server lives")
        assert server.stop() == -signal.SIGSEGV
        for process in models:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


@pytest.mark.nightly
def test_classes_of_a_string_output_crash_this_release_of_triton(
    serve: Serve, draft_target_plan: RepositoryPlan
) -> None:
    """Triton 2.51 divides by the size of a string for `classification`, which no model receives.

    If this test fails on another release, that release has the fix: report it in docs/security.md.
    """
    request = request_of("ensemble", GOOD["ensemble"])
    output = request.outputs.add(name="text_output")
    output.parameters["classification"].int64_param = 3
    with (
        serve(draft_target_plan) as server,
        grpc.insecure_channel(server.url) as channel,
    ):
        models = server.processes()[1:]
        call = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter([request]))
        with pytest.raises(grpc.RpcError):
            list(call)
        # The server's process remains for a moment, and `stop` returns its status.
        until(lambda: not server.processes()[1:], lambda: "the server lives")
        assert server.stop() == -signal.SIGFPE
        # Otherwise some processes of the server's models would wait forever.
        for process in models:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
