"""The verification and benchmark Jobs, against a server with known acceptance and step times."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from specdec.api.conditions import Type
from specdec.api.model import SpeculativeModel
from specdec.client.load import Report
from specdec.client.load.report import Arm
from specdec.jobs import benchmark, verify
from specdec.jobs.result import LIMIT_BYTES, shorten
from specdec.pipeline.job_results import Measured
from specdec.pipeline.stages import verification_result
from support.simulated_cluster import resource
from unit.bench.simulated import Simulated, served
from unit.bench.simulated_http import served_http
from unit.jobs.termination import read_result

Json = dict[str, Any]


class Service(Simulated):
    """A simulated BLS with a default seed of 0; its ensemble can return another answer."""

    differs = False

    @override
    def rounds(self, given: Json) -> Iterator[tuple[int, int, int]]:
        yield from super().rounds({"random_seed": 0, **given})

    @override
    def ModelStreamInfer(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        for request in requests:
            for part in super().ModelStreamInfer(iter([request]), context):
                if self.differs and request.model_name == "ensemble":
                    change_text(part.infer_response)
                yield part


def change_text(response: Any) -> None:
    """Replace each x of the response's text by y."""
    raw = response.raw_output_contents
    for index, output in enumerate(response.outputs):
        if output.name == "text_output":
            raw[index] = raw[index].replace(b"x", b"y")


def run_verify(url: str, **changed: Any) -> int:
    plan = {
        "planHash": "0" * 16,
        "kind": "bls",
        "compares": True,
        "server": url,
        "draftTokens": 4,
        "maxPrompts": 6,
        "maxTokens": 24,
        **changed,
    }
    return verify.main(["--plan", json.dumps(plan)])


def conditions_of(verification: Json) -> dict[str, tuple[str, str]]:
    """Return status and reason of each condition that the operator sets for a verification."""
    entry = verification_result.entry(Measured.model_validate(verification))
    conditions = verification_result.conditions(SpeculativeModel.parse(resource()), entry)
    return {condition.type: (condition.status, condition.reason) for condition in conditions}


def run_benchmark(url: str, volume: Path, **changed: Any) -> int:
    plan = {
        "planHash": "0" * 16,
        "kind": "bls",
        "server": url,
        "draftTokens": 4,
        "model": "tensorrt_llm_bls",
        "concurrency": [1, 2],
        "requests": 6,
        "outputTokens": 24,
        "maxErrorPercent": 0,
        "report": "reports/pair-demo/0000.json",
        **changed,
    }
    return benchmark.main(["--plan", json.dumps(plan), "--volume", str(volume)])


@pytest.mark.slow
def test_every_figure_of_a_verification_reaches_the_status() -> None:
    # Steps are long, so that the delays of a busy machine stay small in comparison.
    with served(Service(acceptance=1.0, target_seconds=0.02, draft_seconds=0.0005)) as url:
        assert run_verify(url, maxPrompts=3) == 0
    verification = read_result()["verification"]
    assert (verification["prompts"], verification["matched"], verification["failed"]) == (3, 3, 0)
    assert verification["acceptedTokens"] == verification["draftedTokens"] > 0
    assert (verification["acceptancePercent"], verification["active"]) == (100, True)
    assert 4 < float(verification["tokensPerRound"]) <= 5
    # Baseline: 24 steps of 20 ms. BLS: 5 steps of 20 ms and 19 drafts of 0.5 ms. 438 % on an idle
    # machine, and up to 659 % on a very busy one.
    assert 200 < verification["speedupPercent"] < 1000
    entry = verification_result.entry(Measured.model_validate(verification))
    assert entry.keys() - {"stale"} == verification.keys(), (
        "nothing is lost on the way to the status"
    )


@pytest.mark.slow
def test_slow_draft_is_reported_as_slower_than_the_baseline() -> None:
    with served(Service(acceptance=0.0, target_seconds=0.005, draft_seconds=0.03)) as url:
        assert run_verify(url, maxPrompts=2, maxTokens=8) == 0
    verification = read_result()["verification"]
    # The BLS takes 8 steps and 22 drafts, none accepted; the baseline takes 8 steps: 6 %.
    assert verification["speedupPercent"] < 50
    assert verification["acceptancePercent"] == 0
    assert conditions_of(verification)[Type.SPECULATION_EFFECTIVE] == (
        "False",
        "SlowerThanBaseline",
    )


def test_verification_without_draft_tokens_is_reported() -> None:
    with served(Service(draft_tokens=0)) as url:
        assert run_verify(url) == 0
    verification = read_result()["verification"]
    assert (verification["active"], verification["draftedTokens"]) == (False, 0)
    assert "acceptancePercent" not in verification
    assert conditions_of(verification)[Type.SPECULATION_ACTIVE] == (
        "False",
        "NoDraftTokensObserved",
    )


def test_different_answer_is_reported_with_its_position() -> None:
    service = Service()
    service.differs = True
    with served(service) as url:
        assert run_verify(url) == 0
    verification = read_result()["verification"]
    assert (verification["prompts"], verification["matched"]) == (6, 0)
    assert verification["divergence"].startswith("prompt 0 (")
    assert "expected 'yyyy" in verification["divergence"]
    assert "got 'xxxx" in verification["divergence"]


def test_unreachable_server_is_retried() -> None:
    with served(Service()) as url:
        pass
    assert run_verify(url) == 1
    assert read_result()["error"]["reason"] == "ServerUnreachable"


def test_failure_quotes_a_server_that_refuses_every_prompt() -> None:
    with served(Service(refuse=0)) as url:
        assert run_verify(url) == 1
    error = read_result()["error"]
    assert error["reason"] == "VerificationFailed"
    assert "no more of these" in error["message"]


def test_prompts_come_from_the_file_up_to_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "one", "max_tokens": 5}\n\n{"prompt": "two"}\n{"prompt": "3"}\n')
    service = Service()
    with served(service) as url:
        assert run_verify(url, prompts=str(file), promptsName="ours", maxPrompts=2) == 0
    assert read_result()["verification"]["prompts"] == 2
    requested = {(given["text_input"], given["max_tokens"]) for given in service.seen}
    assert requested == {(b"one", 5), (b"two", 24)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "ConfigMap ours, key a is missing: create it, or correct"),
        ("", "is empty"),
        ('{"prompt": "x"}\nnothing\n', "line 2 is not JSON"),
    ],
)
def test_invalid_prompts_are_reported_with_their_resolution(
    text: str | None, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "prompts.jsonl"
    if text is not None:
        file.write_text(text)
    plan = {"prompts": str(file), "promptsName": "ConfigMap ours, key a"}
    assert run_verify("localhost:1", **plan) == 2
    error = read_result()["error"]
    assert error["reason"] == "PromptsInvalid"
    assert message in error["message"]
    assert str(tmp_path) not in error["message"]


def figures(arm: Arm) -> dict[str, Any]:
    """Return the figures of `status.benchmark` for one decoding path of a report."""
    assert arm.request_latency is not None
    assert arm.time_to_first_token is not None
    return {
        "requests": arm.requests,
        "errors": arm.errors,
        "tokensPerSecond": f"{arm.output_token_throughput:.1f}",
        "latencyP50Ms": f"{arm.request_latency.p50:.1f}",
        "firstTokenP50Ms": f"{arm.time_to_first_token.p50:.1f}",
    }


@pytest.mark.slow
def test_benchmark_returns_a_summary_and_writes_the_report(tmp_path: Path) -> None:
    service = Service(acceptance=1.0, target_seconds=0.005, draft_seconds=0.0001)
    with served_http(service) as server:
        assert run_benchmark(server.url, tmp_path, outputTokens=12, protocol="http") == 0
    summary = read_result()["benchmark"]
    file = tmp_path / "reports" / "pair-demo" / "0000.json"
    report = Report.from_json(json.loads(file.read_text()))
    assert [path.name for path in file.parent.iterdir()] == ["0000.json"]
    assert [level["concurrency"] for level in summary["levels"]] == [1, 2]
    for shown, level in zip(summary["levels"], report.levels, strict=True):
        (fast,) = level.speculative
        assert fast.speedup_percent is not None
        assert fast.acceptance_percent is not None
        assert fast.tokens_per_round is not None
        speed = fast.speedup_percent
        assert shown["speedupPercent"] == round(speed.value) > 100
        assert shown["speedupInterval"] == f"{speed.low:.0f}-{speed.high:.0f}"
        assert shown["acceptancePercent"] == round(fast.acceptance_percent) == 100
        assert shown["tokensPerRound"] == f"{fast.tokens_per_round:.2f}"
        for name, arm in (("baseline", level.arms[0]), ("speculative", fast)):
            assert shown[name] == figures(arm), "the figures differ from the report's"
        assert level.arms[0].requests == 6
    assert "% with 1" in summary["message"]


@pytest.mark.slow
def test_benchmark_with_too_many_errors_fails_with_its_summary(tmp_path: Path) -> None:
    with served(Service(refuse=20)) as url:
        assert run_benchmark(url, tmp_path, concurrency=[1], requests=20) == 2
    answer = read_result()
    assert answer["error"]["reason"] == "ErrorRateHigh"
    assert "spec.benchmark.maxErrorPercent 0: " in answer["benchmark"]["message"]
    assert "no more of these" in answer["benchmark"]["message"]
    assert answer["benchmark"]["levels"][0]["speculative"]["errors"] > 0
    assert (tmp_path / "reports" / "pair-demo" / "0000.json").is_file()


def test_largest_benchmark_fits_into_a_termination_message() -> None:
    arm = dict.fromkeys(("latencyP50Ms", "firstTokenP50Ms", "tokensPerSecond"), "123456789.0")
    level = {
        "concurrency": 256,
        "speedupPercent": 1000,
        "speedupInterval": "1000-1000",
        "acceptancePercent": 100,
        "tokensPerRound": "100.00",
        "baseline": arm,
        "speculative": arm,
    }
    summary = {"levels": [level] * 8, "message": "x" * 400, "planHash": "0" * 16}
    error = {"reason": "ErrorRateHigh", "message": "x" * 400}
    text = shorten({"benchmark": summary, "error": error})
    assert len(text.encode()) <= LIMIT_BYTES
    assert json.loads(text)["benchmark"] == summary, "the message is shortened, figures are not"
