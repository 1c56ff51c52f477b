"""The load of `specdec certify`: throughput by number of clients, and digests of the answers."""

import hashlib
import json
from typing import Any

from typing_extensions import override

from specdec.client.dataset import built_in
from specdec.jobs import throughput
from unit.client.fake_pair import counting, served
from unit.client.fake_service import Service
from unit.jobs.termination import read_result

Json = dict[str, Any]


def lower(ids: Any) -> int:
    """A target model: return the next letter; after z or another byte, return a."""
    return counting(ids) if 96 < ids[-1] < 122 else ord("a")


def load(url: str, **changed: Any) -> int:
    plan = {
        "kind": "bls",
        "server": url,
        "draftTokens": 4,
        "prompts": 4,
        "outputTokens": 8,
        "concurrency": [1, 8],
        **changed,
    }
    return throughput.main(["--plan", json.dumps(plan)])


def test_levels_have_throughput_and_answers_have_digests() -> None:
    with served(Service(target=lower, longest=10_000)) as url:
        assert load(url) == 0
    report = read_result()["throughput"]
    assert (report["prompts"], report["tokens"]) == (4, 4 * 8)
    entries = built_in()
    prompts = [entry.prompt for entry in entries[:: len(entries) // 4][:4]]
    expected = []
    for prompt in prompts:
        ids = list(prompt.encode())
        for _ in range(8):
            ids.append(lower(ids))
        text = bytes(ids[len(prompt.encode()) :])
        expected.append(hashlib.sha256(text).hexdigest()[:10])
    assert report["answers"] == expected
    one, eight = report["levels"]
    assert (one["concurrency"], one["requests"], one["failed"]) == (1, 8, 0)
    # Each client sends at least two requests.
    assert (eight["concurrency"], eight["requests"], eight["failed"]) == (8, 16, 0)
    # Both the rate and the time are rounded, so they are equal only approximately.
    assert abs(one["tokensPerSecond"] * one["seconds"] / 64 - 1) < 0.1
    assert one["latencyP50Ms"] <= one["latencyMaxMs"]


def test_client_loop_is_loaded_where_each_model_has_a_server() -> None:
    target, draft = (
        Service(target=lower, draft=lower, longest=10_000),
        Service(target=lower, longest=10_000),
    )
    with served(target) as url, served(draft) as other:
        assert load(url, clientLoop=True, draftServer=other, concurrency=[2]) == 0
    report = read_result()["throughput"]
    assert report["levels"][0]["failed"] == 0
    assert "tensorrt_llm_bls" not in {name for name, _ in target.seen}
    assert [name for name, given in draft.seen if name == "tensorrt_llm"]
    with served(Service(target=lower, longest=10_000)) as url:
        assert load(url) == 0
    assert read_result()["throughput"]["answers"] == report["answers"]


def test_rejected_requests_are_counted() -> None:
    class Busy(Service):
        """Rejects every call of the BLS after the twelfth."""

        @override
        def _parts(self, model: str, given: dict[str, Any]) -> Any:
            if self.calls > 12:
                raise ValueError("queue is full")
            return super()._parts(model, given)

    with served(Busy(target=lower, longest=10_000)) as url:
        assert load(url) == 0
    one, eight = read_result()["throughput"]["levels"]
    assert one["failed"] == 0
    assert eight["failed"] == 16
    assert eight["failure"]
    assert "latencyP50Ms" not in eight


def test_lost_server_is_an_error_with_a_retry() -> None:
    with served(Service(target=lower, longest=10_000, stops_at=6)) as url:
        assert load(url) == 1
    error = read_result()["error"]
    assert error["reason"] == "ServerUnreachable"


def test_server_without_the_bls_is_an_error_without_a_retry() -> None:
    with served(Service(absent=("tensorrt_llm_bls",))) as url:
        assert load(url) == 2
    error = read_result()["error"]
    assert error["reason"] == "BenchmarkFailed"
    assert "tensorrt_llm_bls" in error["message"]
