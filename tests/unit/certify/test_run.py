"""A run on a fake API server: results, resumption, clean-up, and errors as one sentence."""

import json
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from specdec.tools.certify import run
from unit.certify.bodies import alone, failing, served, state, waiting
from unit.certify.fake_operator import CLAIMS, JOBS, PODS, RESOURCES, FakeOperator

Json = dict[str, Any]
Certify = Callable[..., Result]
TRIED = ["baseline", "draft-target-shared", "logits", "lookahead", "ngram"]
NAMES = [f"certify-{name}" for name in TRIED]


@pytest.mark.slow
def test_every_entry_that_applies_runs_and_is_deleted(
    api: FakeOperator, certify: Certify, out: Path
) -> None:
    api.scripts["certify-logits"] = [waiting("EnginesReady", "Building"), served()]
    result = certify()
    assert result.exit_code == 0, result.output
    assert api.created() == NAMES
    assert not [path for path in api.store if "certify" in path], "something is left"
    deleted = [path.rpartition("/")[2] for method, path in api.writes if method == "DELETE"]
    # Each resource is deleted before the next starts, which may need its GPU; the claim is last.
    assert deleted == [*NAMES, "specdec-certify"]
    order = [path.rpartition("/")[2] for _, path in api.writes if path.startswith(RESOURCES)]
    assert order == [name for name in NAMES for _ in ("PATCH", "DELETE")]
    assert "5 of 5 passed, 11 not tried" in result.stdout
    passed = state(out, "logits")
    assert passed["outcome"] == "passed"
    assert passed["sentence"].startswith("4 of 4 answers are the target's own")
    assert [s["stage"] for s in passed["stages"]][-1] == "Benchmark"
    changes = [item["reason"] for item in passed["history"] if item["type"] == "EnginesReady"]
    assert changes == ["Building", "Built"]
    assert passed["servers"] == [
        {
            "pod": "certify-logits-0",
            "accepted": 60,
            "drafted": 80,
            "fallbacks": 0,
            "rounds": 20,
            "gpus": [{"usedMiB": 12288, "totalMiB": 81559}],
        }
    ]


@pytest.mark.slow
def test_service_that_the_operator_benchmarks_gets_no_load_of_the_command(
    api: FakeOperator, certify: Certify, out: Path
) -> None:
    assert certify("--only", "baseline,logits").exit_code == 0
    (created,) = api.created(JOBS)
    assert created.startswith("certify-baseline-throughput-")
    measured = state(out, "logits")
    assert measured["throughput"]["levels"] == [
        {
            "concurrency": 1,
            "requests": 16,
            "failed": 0,
            "tokensPerSecond": 142.4,
            "latencyP50Ms": 20.5,
            "speedupPercent": 158,
        },
        {"concurrency": 8, "requests": 16, "failed": 0, "tokensPerSecond": 410.0},
    ]
    assert measured["sentence"].endswith(
        "up to 410 tokens/s, 158 % of the baseline's speed with 1 client, 102 % of the baseline's "
        "speed with 8 clients"
    )


@pytest.mark.slow
def test_load_runs_in_the_operators_image_beside_the_service(
    api: FakeOperator, certify: Certify
) -> None:
    jobs: list[Json] = []

    def remember(_: str) -> None:
        jobs.extend(
            body for path, body in api.store.items() if "throughput" in path and "jobs" in path
        )

    api.on_read = remember
    assert certify("--only", "baseline").exit_code == 0
    (created,) = api.created(JOBS)
    assert created.startswith("certify-baseline-throughput-")
    job = next(job for job in jobs if job["metadata"]["name"] == created)
    pod = job["spec"]["template"]
    assert pod["spec"]["containers"][0]["image"] == "operator:1"
    assert pod["spec"]["automountServiceAccountToken"] is False
    # The operator lists its children by this label, so this Job must not have it.
    assert "specdec.dev/model" not in job["metadata"]["labels"] | pod["metadata"]["labels"]
    assert job["metadata"]["ownerReferences"][0]["name"] == "certify-baseline"


@pytest.mark.slow
def test_failed_entry_has_its_sentence_and_the_others_run(
    api: FakeOperator, certify: Certify, out: Path
) -> None:
    api.scripts["certify-draft-target-shared"] = [failing()]
    result = certify()
    assert result.exit_code == 1
    assert api.created() == NAMES
    failed = state(out, "draft-target-shared")
    assert failed["sentence"] == "Accepted is InvalidSpec: spec.x is 1: set it to 2"
    assert failed["condition"] == ["Accepted", "InvalidSpec"]
    assert failed["throughput"] is None
    assert "1 of 5 failed, 11 not tried" in result.stdout
    assert state(out, "lookahead")["outcome"] == "passed"


@pytest.mark.slow
def test_resource_that_the_api_server_rejects_is_a_failed_entry(
    api: FakeOperator, certify: Certify, out: Path
) -> None:
    api.rejected[f"{RESOURCES}/certify-logits"] = (422, "spec.x is invalid")
    assert certify("--only", "baseline,logits").exit_code == 1
    sentence = "the API server rejects SpeculativeModel certify-logits: spec.x is invalid"
    assert state(out, "logits")["sentence"] == sentence


def test_missing_right_ends_the_run_with_a_sentence(
    api: FakeOperator, certify: Certify, out: Path
) -> None:
    api.rejected[f"{RESOURCES}/certify-baseline"] = (403, "you may not patch speculativemodels")
    result = certify()
    assert result.exit_code == 1
    assert result.stderr.strip().endswith("you may not patch speculativemodels")
    assert state(out, "baseline")["outcome"] == "running"


@pytest.mark.slow
def test_overloaded_api_server_is_asked_again(
    api: FakeOperator, certify: Certify, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.flaky = 3
    assert certify("--only", "baseline").exit_code == 0
    api.flaky = 1000
    monkeypatch.setattr(run, "_PATIENCE_SECONDS", -1.0)
    result = certify("--only", "lookahead")
    assert result.exit_code == 3
    assert "answers 503 about SpeculativeModel certify-lookahead: overloaded" in result.stderr
    api.flaky = 0
    assert certify("--only", "lookahead").exit_code == 0
    assert api.created() == ["certify-baseline", "certify-lookahead"]


@pytest.mark.slow
def test_terminal_gets_a_line_for_each_result(
    api: FakeOperator, certify: Certify, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    building = waiting("EnginesReady", "Building")
    building["status"]["conditions"][5]["message"] = "a [bold]bracket[/bold]"
    api.scripts["certify-baseline"] = [building, alone()]
    result = certify("--only", "baseline")
    assert result.exit_code == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", result.stderr)
    assert "1/1 baseline passed (" in plain
    # A terminal shows a line that changes, instead of a line for each step.
    assert "baseline: starts" not in plain
    monkeypatch.delenv("FORCE_COLOR")
    assert "1/1 logits: starts" in certify("--only", "logits").stderr


@pytest.mark.slow
def test_failed_load_is_a_failed_entry(api: FakeOperator, certify: Certify, out: Path) -> None:
    error = {"reason": "ServerUnreachable", "message": "no connection"}
    api.results["certify-baseline"] = {"error": error}
    assert certify("--only", "baseline").exit_code == 1
    sentence = state(out, "baseline")["sentence"]
    assert sentence.startswith("Job certify-baseline-throughput-")
    assert sentence.endswith(" failed: ServerUnreachable: no connection")


@pytest.mark.slow
def test_archive_has_every_file_and_no_secret(
    api: FakeOperator, certify: Certify, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "token-of-the-environment")
    api.scripts["certify-logits"] = [
        failing(message="GET https://user:pa55word@hub/x failed with token-of-the-environment")
    ]
    assert certify("--only", "baseline,logits").exit_code == 1
    with tarfile.open(out / "specdec-certify.tar.gz") as archive:
        content = {
            member.name.partition("/")[2]: archive.extractfile(member).read().decode()  # type: ignore[union-attr]
            for member in archive.getmembers()
        }
        assert {(member.uid, member.gid, member.mtime) for member in archive.getmembers()} == {
            (0, 0, 0)
        }
    of_entry = ("events.json", "logs/certify-baseline-0.log", "metrics/certify-baseline-0.txt")
    names = (*of_entry, "resource.json", "result.json", "status.json")
    assert {"index.html", "run.json", *(f"entries/baseline/{name}" for name in names)} <= set(
        content
    )
    assert "server ready" in content["entries/baseline/logs/certify-baseline-0.log"]
    text = "".join(content.values())
    for secret in ("hf_aaaa", "token-of-the-environment", "pa55word", "hush"):
        assert secret not in text
    assert "[removed]" in content["entries/logits/result.json"]
    events = json.loads(content["entries/baseline/events.json"])["events"]
    assert [item["object"] for item in events] == ["SpeculativeModel certify-baseline"]
    # The command never reads a Secret.
    assert not [path for path, _ in api.seen if "secrets" in path]


def test_what_the_caller_may_not_read_is_a_note(
    api: FakeOperator, certify: Certify, out: Path
) -> None:
    api.errors["/api/v1/namespaces/specdec-system/pods"] = (403, "you may not list pods")
    api.errors[f"{PODS}/certify-baseline-0:8002/proxy/metrics"] = (403, "no pods/proxy")
    assert certify("--only", "baseline").exit_code == 0
    notes = state(out, "baseline")["notes"]
    assert len(notes) == 2
    assert notes[0].startswith("a part of pod certify-baseline-0 is not included: ")
    assert notes[1].startswith("log and metrics of the operator are not included: ")


def test_list_creates_nothing(api: FakeOperator, certify: Certify, out: Path) -> None:
    result = certify("--list")
    assert result.exit_code == 0
    rows = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert rows["lookahead"].split()[2] == "yes"
    assert "it needs a checkpoint" not in rows["eagle"]
    assert "does not serve method Eagle" in rows["eagle"]
    assert api.writes == []
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--backend", "Triton"), "--backend is 'Triton'; write one of TensorRT, PyTorch, "),
        (("--backend", "TensorRT"), "no node of the cluster has nvidia.com/gpu; install "),
        (("--only", "all"), "--only is 'all'; write names of the matrix with commas: baseline, "),
        (("--only", "eagle"), "nothing is tried: eagle: backend Reference 0.19.0 does not "),
        (("-n", "A b"), "--namespace is 'A b'; write a name as kubectl shows it"),
        (("--timeout", "0"), "--timeout is 0; set it above 0 and to at most 10080 minutes"),
        (("--heads", "x"), "--heads is 'x'; write METHOD=SOURCE with a method of Eagle, "),
    ],
)
def test_bad_input_is_a_sentence_and_nothing_is_created(
    api: FakeOperator, certify: Certify, arguments: tuple[str, ...], sentence: str
) -> None:
    result = certify(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"specdec: {sentence}")
    assert len(result.stderr.splitlines()) == 1
    assert api.writes == []


def test_missing_pair_names_the_sample(api: FakeOperator, certify: Certify) -> None:
    del api.objects[f"{CLAIMS}/reference-pair"]
    result = certify()
    assert result.exit_code == 2
    assert result.stderr == (
        "specdec: claim reference-pair is missing in namespace lab: run kubectl apply -f "
        "manifests/samples/reference-pair.yaml\n"
    )


def test_cluster_without_the_operator_is_a_sentence(api: FakeOperator, certify: Certify) -> None:
    del api.objects[RESOURCES]
    result = certify()
    assert result.exit_code == 2
    assert "install the operator first" in result.stderr
