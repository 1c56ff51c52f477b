"""The rendered samples of backend PyTorch on a CPU server, with the stand-in for the LLM API.

The server sees the shipped pair of checkpoints at the paths that `model.yaml` names.
"""

import asyncio
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.processes import DEADLINE_SECONDS
from specdec.client import BadRequestError, Client, Connection, Request
from specdec.client.dataset import Entry
from specdec.client.decoding_paths import TextModel, token_count
from specdec.client.generate import Protocol
from specdec.client.grpc_calls import Server as GrpcServer
from specdec.client.load import Settings, measure
from specdec.client.verification import Options, verify
from specdec.images.serving import engines
from specdec.jobs import throughput
from specdec.jobs.benchmark import benchmark
from specdec.jobs.result import JobError
from specdec.jobs.verify import VerificationPlan, measured
from specdec.servers.kind import kind
from specdec.servers.llm_api.serving import TOKEN
from specdec.tools.dry_run.plan import ResourcePlan as DryRun
from specdec.triton.model_names import BLS
from support.planned_samples import NAMESPACE, planned
from support.shipped_pair import PAIR
from support.triton_server import Server, ServerError
from triton import inside
from triton.conftest import Serve

MODEL = "tensorrt_llm"
KIND = kind("llm_api")
PROMPT = "def read_lines(path):\n"
SERVED = ("pytorch-ngram", "pytorch-draft-target", "pytorch-suffix-automaton")
TRAINED = ("pytorch-eagle3", "pytorch-mtp", "pytorch-pard", "pytorch-dflash")


@dataclass(frozen=True)
class Volume:
    """A folder that the server sees at /models; its checkpoints link to those of the pair."""

    folder: Path
    root: Path

    def within(self, plan: DryRun) -> tuple[str, ...]:
        checkpoints = self.folder / "checkpoints"
        checkpoints.mkdir(parents=True, exist_ok=True)
        for model in plan.status["models"]:
            place = checkpoints / model["digest"]
            if not place.exists():
                place.symlink_to(PAIR / ("draft" if model["role"] == "draft" else "target"))
        here = (*NAMESPACE, sys.executable, inside.__file__, str(self.root), str(self.folder))
        tried = subprocess.run([*here, "/bin/true"], capture_output=True, check=False)
        if tried.returncode:
            pytest.skip(f"no user namespace for a /models of our own: {tried.stderr!r:.200}")
        return here


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    for name in ("models", "root"):
        (tmp_path / name).mkdir()
    return Volume(tmp_path / "models", tmp_path / "root")


@pytest.fixture(scope="module", params=SERVED)
def server(
    request: pytest.FixtureRequest, serve: Serve, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    plan = planned(request.param)
    within = Volume(tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("root")).within(
        plan
    )
    with serve(plan.files, within) as running:
        for path, written in plan.files.items():
            assert (running.repository / path).read_text("utf-8") == written
        yield running


def post(server: Server, values: dict[str, Any], *, stream: bool = False, name: str = "") -> Any:
    """Return the answer of Triton's generate endpoint: an object, or the objects of a stream."""
    verb = "generate_stream" if stream else "generate"
    url = f"http://127.0.0.1:{server.http_port}/v2/models/{MODEL}/{verb}"
    body = {"text_input": PROMPT, **values, **({"id": name} if name else {})}
    asked = urllib.request.Request(url, json.dumps(body).encode())
    with urllib.request.urlopen(asked, timeout=DEADLINE_SECONDS) as reply:
        text = reply.read().decode()
    if not stream:
        return json.loads(text)
    lines = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")]
    return [json.loads(line) for line in lines]


def refused(server: Server, values: dict[str, Any]) -> str:
    with pytest.raises(urllib.error.HTTPError) as error:
        post(server, values)
    return str(json.loads(error.value.read())["error"])


@pytest.fixture(scope="module")
def expected(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the answer of the target alone: of the n-gram sample without speculation."""
    plan = planned("pytorch-ngram")
    files = dict(plan.files)
    path = f"{MODEL}/1/model.yaml"
    configuration = yaml.safe_load(files[path])
    del configuration["speculative_config"]
    files[path] = yaml.safe_dump(configuration)
    within = Volume(tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("root")).within(
        plan
    )
    with serve(files, within) as running:
        return str(post(running, {"sampling_param_max_tokens": 40})["text_output"])


def test_a_sample_gives_the_answer_of_the_target_alone(server: Server, expected: str) -> None:
    asked = {"sampling_param_max_tokens": 40, "sampling_param_return_perf_metrics": True}
    answer = post(server, asked)
    assert answer["text_output"] == expected
    assert int(answer["total_draft_tokens"]) >= int(answer["total_accepted_draft_tokens"]) > 0
    parts = post(server, {**asked, "streaming": True}, stream=True)
    # Every response has the whole text so far.
    texts = [part["text_output"] for part in parts]
    assert texts[-1] == expected
    assert len(texts) > 1
    assert int(parts[-1]["total_draft_tokens"]) > 0


def test_requests_in_flight_do_not_disturb_each_other(server: Server, expected: str) -> None:
    answers: list[str] = []

    def ask() -> None:
        answers.append(post(server, {"sampling_param_max_tokens": 40})["text_output"])

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [expected] * 6


def test_the_answer_ends_at_a_stop_text(server: Server, expected: str) -> None:
    """`1/helpers.py` of TensorRT-LLM (1.1 to August 2026) gives SamplingParams the bytes of the
    tensor. So does the stand-in, whose tokenizer refuses them. `1/model.py` of the repository
    decodes them.
    """
    stop = expected[10:14]
    asked = {"sampling_param_max_tokens": 40, "sampling_param_stop": [stop]}
    answer = post(server, {**asked, "return_finish_reason": True, "return_stop_reason": True})
    assert answer["text_output"] == expected[: expected.index(stop)]
    assert (answer["finish_reason"], answer["stop_reason"]) == ("stop", stop)
    several = {**asked, "sampling_param_stop": ["", "\N{SNOWMAN}", stop], "streaming": True}
    parts = post(server, several, stream=True)
    assert parts[-1]["text_output"] == answer["text_output"]
    short = post(server, {"sampling_param_max_tokens": 2, "return_finish_reason": True})
    assert short["finish_reason"] == "length"


def test_bad_requests_are_refused_in_a_sentence(server: Server) -> None:
    assert "set it to 1 or more" in refused(server, {"sampling_param_max_tokens": 0})
    assert "best_of must be 1" in refused(server, {"sampling_param_best_of": 2})
    assert "is empty" in refused(server, {"text_input": ""})
    assert "request id" in refused(server, {"stop": True})


def test_the_startup_probe_gets_a_token(server: Server, tmp_path: Path) -> None:
    engines.STATE = tmp_path / "state"
    plan = engines.Plan(
        server.http_port, server.metrics_port, (MODEL,), 30.0, 60.0, TOKEN.request, TOKEN.output
    )
    assert engines.startup(plan) == ""
    assert engines.readiness(plan) == ""


def test_the_verification_job_counts_draft_tokens(server: Server) -> None:
    plan = VerificationPlan(
        "0" * 16, KIND, False, False, server.url, None, None, 0, None, "", 3, 24
    )
    result = asyncio.run(measured(plan))
    assert (result["prompts"], result["failed"], result["active"]) == (3, 0, True)
    assert 0 < result["acceptedTokens"] <= result["draftedTokens"]
    assert "matched" not in result


def test_the_load_of_certify_counts_tokens_and_compares_answers(server: Server) -> None:
    plan = {"draftTokens": 0, "prompts": 4, "outputTokens": 8, "concurrency": [2]}
    load = throughput.ThroughputPlan.parse(
        json.dumps({"kind": KIND.name, "server": server.url, **plan})
    )
    result = asyncio.run(throughput.measured(load))
    assert 4 <= result["tokens"] <= 4 * 8
    (level,) = result["levels"]
    assert (level["requests"], level["failed"]) == (8, 0)
    assert level["tokensPerSecond"] > 0
    assert len(result["answers"]) == 4


def test_the_tokens_of_an_answer_are_counted_by_its_limit(server: Server) -> None:
    """An answer that ends by itself has as many tokens as the least limit that does not end it."""

    async def count(limit: int) -> int:
        async with GrpcServer(Connection(server.url)) as connected:
            return await token_count(TextModel(connected, MODEL), PROMPT, limit)

    assert asyncio.run(count(5)) == 5


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("stream", [False, True])
def test_the_client_speaks_to_the_llm_api(
    server: Server, expected: str, protocol: Protocol, stream: bool
) -> None:
    port = server.grpc_port if protocol == "grpc" else server.http_port
    request = Request(PROMPT, MODEL, max_tokens=40, stream=stream, seed=3)
    with Client(Connection(f"127.0.0.1:{port}"), protocol=protocol) as client:
        answer = client.ask(request)
        with pytest.raises(BadRequestError, match="drafts inside its engine"):
            client.ask(Request(PROMPT, MODEL, draft_tokens=0))
    assert answer.text == expected
    assert (answer.chunks > 1) == stream
    assert answer.counts is not None
    assert answer.counts.drafted >= answer.counts.accepted > 0


def test_verification_compares_the_llm_api_with_a_service(
    server: Server, newer_server: Server
) -> None:
    entries = [Entry(PROMPT), Entry("class Stack:\n")]
    here, other = Connection(server.url), Connection(newer_server.url)
    options = Options(model=MODEL, max_tokens=24)
    result = asyncio.run(verify(entries, options, here, baseline=other))
    assert (result.prompts, result.matched, result.failures) == (2, 2, ())
    assert result.draft_tokens
    with pytest.raises(BadRequestError, match="no baseline in its own service"):
        asyncio.run(verify(entries, options, here))
    again = replace(options, baseline_model=MODEL)
    with pytest.raises(BadRequestError, match="the measured service itself"):
        asyncio.run(verify(entries, again, here, baseline=here))


def test_the_benchmark_measures_the_llm_api(server: Server) -> None:
    settings = Settings(
        model=MODEL, requests=2, output_tokens=12, warmup=0, resamples=100, single=True
    )
    where = Connection(f"127.0.0.1:{server.http_port}")
    report = asyncio.run(measure(where, settings))
    [level] = report.levels
    [arm] = level.arms
    assert (arm.requests, arm.errors, arm.speedup_percent) == (2, 0, None)
    assert arm.acceptance_percent is not None
    with pytest.raises(BadRequestError, match="give --baseline-url"):
        asyncio.run(measure(where, replace(settings, single=False)))


def benchmark_plan(
    server: Server, baseline: Server, baseline_kind: str, model: str
) -> dict[str, Any]:
    """Return the plan of a benchmark Job with a baseline, as the operator writes it."""
    address = f"127.0.0.1:{baseline.http_port}"
    return {
        "planHash": "0" * 16,
        "server": f"127.0.0.1:{server.http_port}",
        "protocol": "http",
        "kind": KIND.name,
        "model": MODEL,
        "baseline": {"name": "plain", "kind": baseline_kind, "server": address, "model": model},
        "draftTokens": 0,
        "concurrency": [1],
        "requests": 4,
        "outputTokens": 12,
        "maxErrorPercent": 0,
        "report": "reports/report.json",
    }


def test_the_benchmark_job_compares_the_llm_api_with_another_service(
    server: Server, newer_server: Server, tmp_path: Path
) -> None:
    result = benchmark(benchmark_plan(server, newer_server, "bls", BLS), tmp_path)["benchmark"]
    (level,) = result["levels"]
    assert result["message"].startswith("speed relative to plain, by concurrent clients: ")
    assert level["speedupPercent"] > 0
    assert level["acceptancePercent"] > 0
    assert level["baseline"]["requests"] == level["speculative"]["requests"] == 4
    report = json.loads((tmp_path / "reports" / "report.json").read_text("utf-8"))
    assert report["baseline_url"].endswith(str(newer_server.http_port))
    with pytest.raises(JobError, match="the measured service itself"):
        benchmark(benchmark_plan(server, server, KIND.name, MODEL), tmp_path)


@pytest.mark.parametrize("sample", TRAINED)
def test_trained_drafters_are_refused_by_name(sample: str, serve: Serve, volume: Volume) -> None:
    plan = planned(sample)
    kind = yaml.safe_load(plan.files[f"{MODEL}/1/model.yaml"])["speculative_config"][
        "decoding_type"
    ]
    with (
        pytest.raises(ServerError, match=f"decoding_type is {kind}, which computes on GPUs only"),
        serve(plan.files, volume.within(plan)),
    ):
        pass
