"""A pod with `trtllm-serve`: its probes, closed paths, answers, counters and drain.

The server is a simulation. The operator generates its command line and options, the proxy and the
probes from the sample.
"""

import asyncio
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from typer.testing import CliRunner

from cluster.processes import DEADLINE_SECONDS, until
from specdec import servers
from specdec.client import Entry
from specdec.client.connection import Connection
from specdec.jobs import verify_counts
from specdec.jobs.benchmark import benchmark
from specdec.tools.cli.app import app
from support.planned_samples import planned
from support.trtllm_serve import ACCEPTED, DRAFTED
from support.trtllm_serve_pod import Pod

SAMPLE = "pytorch-trtllm-serve"
OLDER, NEWER = "1.2.1", "1.3.0"
QUESTION: list[Any] = [{"role": "user", "content": "Count."}]
HOLDING: list[Any] = [{"role": "user", "content": "hold on"}]
CLOSED = ("/release_memory", "/resume_memory", "/update_weights", "/steady_clock_offset")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@contextmanager
def serving(folder: Path, release: str = NEWER) -> Iterator[Pod]:
    with Pod(planned(SAMPLE), folder, release) as pod:
        pod.signal("loaded", "generates")
        until(lambda: pod.status("/health/ready") == 200, lambda: "not ready")
        yield pod


@contextmanager
def clients(pod: Pod) -> Iterator[openai.OpenAI]:
    url = f"{pod.url}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def refusal(pod: Pod, path: str, body: dict[str, Any]) -> tuple[int, str]:
    request = urllib.request.Request(f"{pod.url}{path}", json.dumps(body).encode())
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(request, timeout=DEADLINE_SECONDS)
    error = raised.value
    with error:
        return error.code, json.loads(error.read())["error"]["message"]


def shorten_startup(pod: Pod) -> None:
    """Let a run of the startup probe end after a second."""
    *program, plan = pod.server["startupProbe"]["exec"]["command"]
    shorter = json.dumps({**json.loads(plan), "seconds": 1})
    pod.server["startupProbe"] = {"exec": {"command": [*program, shorter]}}


def test_the_startup_probe_waits_for_a_token(folder: Path) -> None:
    with Pod(planned(SAMPLE), folder, OLDER) as pod:
        shorten_startup(pod)
        assert "/v1/completions did not answer" in pod.probe("startup")
        assert pod.status("/health/ready") == 503
        pod.signal("loaded")
        until(lambda: pod.status("/health", url=pod.direct) == 200, lambda: "no server")
        assert "/v1/completions answered 503" in pod.probe("startup")
        pod.signal("generates")
        assert not pod.probe("startup")
        assert not pod.probe("readiness")
        assert not pod.probe("liveness")


def test_a_checkpoint_without_a_chat_template_starts(folder: Path) -> None:
    """`health_generate` of `serve/openai_server.py` sends a chat, which `apply_chat_template` of
    `inputs/utils.py` refuses without a template. Completions need none.
    """
    with Pod(planned(SAMPLE), folder, OLDER, chats=False) as pod:
        shorten_startup(pod)
        pod.signal("loaded", "generates")
        until(lambda: pod.status("/health", url=pod.direct) == 200, lambda: "no server")
        assert pod.status("/health_generate", url=pod.direct) == 500
        assert not pod.probe("startup")
        pod.age(20)
        assert not pod.probe("readiness")
        assert not pod.probe("liveness")


def test_liveness_fails_after_the_loss_of_a_rank(folder: Path) -> None:
    with serving(folder) as pod:
        assert not pod.probe("liveness")
        pod.signal("rank-died")
        assert "/health answered 503" in pod.probe("liveness")
        assert "/health answered 503" in pod.probe("readiness")
        assert pod.status("/health/ready") == 503
        assert pod.ended("server") is None
        with clients(pod) as client, pytest.raises(openai.InternalServerError) as raised:
            client.chat.completions.create(model=SAMPLE, messages=QUESTION)
        assert "the executor has failed; try again later" in str(raised.value)


def test_probes_find_the_loss_of_a_rank_where_health_does_not_report_it(folder: Path) -> None:
    with serving(folder, OLDER) as pod:
        assert not pod.probe("startup")
        pod.signal("rank-died")
        assert pod.status("/health", url=pod.direct) == 200
        assert not pod.probe("readiness"), "it has given a token just now"
        pod.age(20)
        assert "/v1/completions answered 503" in pod.probe("readiness")
        assert not pod.probe("liveness")
        pod.age(200)
        assert "no token for more than 120 s" in pod.probe("liveness")


@pytest.mark.parametrize("path", CLOSED)
def test_no_client_reaches_the_open_posts(folder: Path, path: str) -> None:
    with serving(folder) as pod:
        name = path[1:]
        for asked in (path, f"/v1/..{path}", f"/v1/%2e%2e{path}", f"{path}%0a", f"//{name}"):
            assert pod.status(asked, "POST") in (404, 405), asked
        assert pod.status(path, "POST", f"http://{pod.metrics}") in (404, 405)
        assert not (pod.signals / f"called-{name}").exists()
        # Within the pod, the server itself answers the path.
        assert pod.status(path, "POST", pod.direct) == 200
        assert (pod.signals / f"called-{name}").exists()


def test_the_server_listens_on_localhost_only() -> None:
    (body,) = [item for item in planned(SAMPLE).objects if item["kind"] == "Deployment"]
    server, _ = body["spec"]["template"]["spec"]["containers"]
    argv = server["command"]
    assert argv[argv.index("--host") + 1] == "127.0.0.1"
    assert "ports" not in server


def test_only_one_port_has_the_metrics_and_the_statistics_stay_in_the_server(folder: Path) -> None:
    with serving(folder) as pod, clients(pod) as client:
        assert pod.status("/metrics") == 404
        assert pod.status("/v1/models", url=f"http://{pod.metrics}") == 404
        client.chat.completions.create(model=SAMPLE, messages=QUESTION, max_tokens=2)
        with urllib.request.urlopen(
            f"http://{pod.metrics}/metrics", timeout=DEADLINE_SECONDS
        ) as reply:
            page = reply.read().decode()
        counted = 'specdec_openai_requests_total{path="/v1/chat/completions",status="200"} 1.0'
        assert counted in page
        assert "trtllm_request_success_total{" in page
        with urllib.request.urlopen(f"{pod.direct}/metrics", timeout=DEADLINE_SECONDS) as reply:
            assert json.loads(reply.read()) == [{"iter": 1}]


def test_chat_is_streamed_under_the_name_of_the_resource(folder: Path) -> None:
    with serving(folder) as pod, clients(pod) as client:
        stream = client.chat.completions.create(
            model=SAMPLE, messages=QUESTION, max_completion_tokens=5, stream=True
        )
        chunks = list(stream)
        assert "".join(c.choices[0].delta.content or "" for c in chunks) == "w0 w1 w2 w3 w4 "
        assert {chunk.model for chunk in chunks} == {SAMPLE}
        answer = client.chat.completions.create(
            model=SAMPLE, messages=QUESTION, max_completion_tokens=3
        )
        assert answer.choices[0].message.content == "w0 w1 w2 "
        assert answer.model == SAMPLE
        text = client.completions.create(model=SAMPLE, prompt="a", max_tokens=2).choices[0].text
        assert text == "w0 w1 "
        assert [model.id for model in client.models.list()] == [SAMPLE]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"model": "another"}, "model is another, which is not served here; set it to "),
        ({"chat_template": "{{ 1 }}"}, "chat_template is no parameter of this endpoint"),
        ({"lora_request": {"lora_path": "/etc"}}, "lora_request is no parameter"),
        ({"disaggregated_params": {"a": 1}}, "disaggregated_params is no parameter"),
        ({"max_tokens": 100_000}, "max_tokens 100000 is too large"),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}}
                        ],
                    }
                ]
            },
            "a part of type image_url, and this endpoint takes text only",
        ),
    ],
)
def test_a_refusal_is_one_sentence(folder: Path, fields: dict[str, Any], sentence: str) -> None:
    with serving(folder) as pod:
        body = {"model": SAMPLE, "messages": QUESTION, **fields}
        status, message = refusal(pod, "/v1/chat/completions", body)
        assert status in (400, 404)
        assert sentence in message


def test_a_client_that_leaves_ends_its_request(folder: Path) -> None:
    with serving(folder) as pod:
        with clients(pod) as client:
            stream = client.chat.completions.create(model=SAMPLE, messages=HOLDING, stream=True)
            next(stream)
            pod.signalled("held")
            stream.close()
        pod.signalled("aborted")


def test_a_client_that_leaves_before_its_answer_ends_its_request(folder: Path) -> None:
    with serving(folder) as pod:
        host, port = pod.url.removeprefix("http://").split(":")
        body = json.dumps({"model": SAMPLE, "messages": HOLDING})
        connection = http.client.HTTPConnection(host, int(port), timeout=DEADLINE_SECONDS)
        connection.request("POST", "/v1/chat/completions", body)
        pod.signalled("held")
        connection.close()
        pod.signalled("aborted")


def test_a_server_that_dies_ends_a_stream_with_an_error(folder: Path) -> None:
    with serving(folder) as pod, clients(pod) as client:
        stream = client.chat.completions.create(model=SAMPLE, messages=HOLDING, stream=True)
        next(stream)
        pod._processes["server"].kill()
        with pytest.raises(openai.APIError, match="the server ended the request"):
            list(stream)


@pytest.mark.parametrize(("release", "counts"), [(OLDER, False), (NEWER, True)])
def test_the_verification_counts_draft_tokens(folder: Path, release: str, counts: bool) -> None:
    with serving(folder, release) as pod:
        entries = [Entry("a", 2), Entry("b", 2)]
        kind = servers.kind("trtllm_serve")
        connection = Connection(pod.url.removeprefix("http://"), path=kind.requests.path)
        result = asyncio.run(verify_counts.counted(kind, connection, pod.metrics, entries, 8))
        assert (result["prompts"], result["failed"]) == (2, 0)
        if counts:
            assert result["active"]
            assert result["draftedTokens"] == 2 * DRAFTED
            assert result["acceptedTokens"] == 2 * ACCEPTED
            assert result["acceptancePercent"] == round(100 * ACCEPTED / DRAFTED)
        else:
            assert "draftedTokens" not in result


def test_a_request_in_flight_is_answered_before_the_server_stops(folder: Path) -> None:
    with serving(folder) as pod, clients(pod) as client:
        stream = client.chat.completions.create(
            model=SAMPLE, messages=HOLDING, max_tokens=4, stream=True
        )
        next(stream)
        pod.signalled("held")
        hook = pod.stop()
        # This is the moment when the proxy's own hook has ended: the kubelet stops the proxy.
        pod.terminate("proxy")
        until(lambda: pod.status("/v1/models") == 0, lambda: "the proxy still accepts")
        assert hook.poll() is None
        assert pod.ended("proxy") is None
        pod.signal("finish")
        assert "".join(c.choices[0].delta.content or "" for c in stream) == "w1 w2 w3 "
        assert hook.wait(DEADLINE_SECONDS) == 0
        until(lambda: pod.ended("proxy") == 0, lambda: "the proxy does not end")


def test_command_and_benchmark_job_compare_two_services(folder: Path) -> None:
    folders = [folder / "one", folder / "two"]
    for each in folders:
        each.mkdir()
    with serving(folders[0]) as one, serving(folders[1]) as two:
        command = ["verify", "--url", f"{one.url}/v1", "--baseline-url", f"{two.url}/v1"]
        done = CliRunner().invoke(app, [*command, "--max-tokens", "4", "--limit", "3", "--json"])
        assert done.exit_code == 0, done.output
        result = json.loads(done.stdout)
        assert (result["prompts"], result["matched"]) == (3, 3)
        plan = {
            "planHash": "0" * 16,
            "draftTokens": 0,
            "report": "report.json",
            "concurrency": [1],
            "requests": 4,
            "outputTokens": 8,
            "maxErrorPercent": 0,
            **service(one),
            "baseline": {"name": "plain", **service(two)},
        }
        summary = benchmark(plan, folder)["benchmark"]
        assert summary["message"].startswith("speed relative to plain, by concurrent clients: ")
        (level,) = summary["levels"]
        assert (level["baseline"]["errors"], level["speculative"]["errors"]) == (0, 0)


def service(pod: Pod) -> dict[str, str]:
    """Return how a benchmark plan names a service with an OpenAI endpoint."""
    return {"server": pod.url.removeprefix("http://"), "kind": "trtllm_serve", "model": ""}
