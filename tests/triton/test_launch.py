"""The server apart from its models: closed endpoints, its end, and the error of a failed load."""

import json
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import tritonclient.grpc as grpc

from cluster.processes import DEADLINE_SECONDS
from specdec.triton.repository import ModelPlan, RepositoryPlan
from support.triton_client import ask, text
from support.triton_server import Server, ServerError
from triton.conftest import Serve


@pytest.mark.parametrize(
    "path",
    [
        "/v2/repository/index",
        "/v2/repository/models/ensemble/unload",
        "/v2/logging",
        "/v2/systemsharedmemory/status",
    ],
)
def test_what_changes_the_server_is_closed(server: Server, path: str) -> None:
    body = b"{}" if "repository" in path else None
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(
            f"http://127.0.0.1:{server.http_port}{path}", body, timeout=DEADLINE_SECONDS
        )


def test_what_changes_the_server_is_closed_over_grpc(server: Server) -> None:
    with grpc.InferenceServerClient(server.url) as client:
        for forbidden in (
            lambda: client.unload_model("ensemble"),
            client.get_log_settings,
            client.get_system_shared_memory_status,
        ):
            with pytest.raises(grpc.InferenceServerException, match="restricted"):
                forbidden()


def test_no_client_can_send_the_header_that_opens_it(server: Server) -> None:
    with grpc.InferenceServerClient(server.url) as client:
        for value in ("no\nvalue", "no value", "no"):
            headers = {"triton-grpc-protocol-specdec-closed": value}
            with pytest.raises(
                grpc.InferenceServerException, match=r"restricted|Invalid metadata"
            ):
                client.get_model_repository_index(headers=headers)


@pytest.mark.parametrize("model", ["tensorrt_llm_bls", "ensemble"])
def test_generate_stream_over_http(server: Server, model: str) -> None:
    body = json.dumps({"text_input": "def f(", "max_tokens": 8, "stream": True}).encode()
    url = f"http://127.0.0.1:{server.http_port}/v2/models/{model}/generate_stream"
    with urllib.request.urlopen(url, body, timeout=DEADLINE_SECONDS) as reply:
        events = [line for line in reply.read().decode().splitlines() if line]
    pieces = [json.loads(event.removeprefix("data: "))["text_output"] for event in events]
    whole = text(
        ask(
            server.url,
            "ensemble",
            text_input="def f(",
            max_tokens=8,
            exclude_input_in_output=True,
        )
    )
    assert len(pieces) > 1
    assert "".join(pieces) == whole


def test_no_draft_in_the_layout_of_0_18(serve: Serve, draft_target_plan: RepositoryPlan) -> None:
    plan = replace(
        draft_target_plan,
        version="0.18.0",
        draft=None,
        draft_tokens=0,
        bls_max_in_flight=1,
    )
    with serve(plan) as server:
        values = {"text_input": "import os\n", "max_tokens": 12}
        plain = text(ask(server.url, "ensemble", **values))

        def answer(client: int) -> str:
            return text(ask(server.url, "tensorrt_llm_bls", stream=bool(client % 2), **values))

        # More clients than slots of the BLS: some requests wait, and all are answered.
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(answer, range(16)))
        assert answers[0::2] == [plain] * 8
        assert answers[1::2] == [plain.removeprefix("import os\n")] * 8
        assert server.stop() == 0
        assert server.shared_memory() == []


def test_a_missing_engine_ends_the_server_with_a_reason(
    serve: Serve, draft_target_plan: RepositoryPlan, tmp_path: Path
) -> None:
    plan = replace(draft_target_plan, target=ModelPlan(str(tmp_path / "nowhere")))
    with (
        pytest.raises(ServerError, match="nowhere"),
        serve(plan),
    ):
        pytest.fail("the server came up without an engine")
