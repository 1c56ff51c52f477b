"""The command `specdec bench`: its output, files and exit status."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cluster.processes import DEADLINE_SECONDS
from specdec.client.load import Report
from specdec.tools.cli.app import app
from unit.bench.simulated import Simulated, served
from unit.bench.simulated_http import served_http

QUICK = ["--requests", "4", "--output-tokens", "8"]


@pytest.fixture
def simulated() -> Simulated:
    return Simulated()


@pytest.fixture
def url(simulated: Simulated) -> Iterator[str]:
    with served_http(simulated) as server:
        yield server.url


def bench(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", "--url", url, *QUICK, *arguments])


def test_grpc_is_selectable() -> None:
    with served(Simulated()) as url:
        result = bench(url, "--protocol", "grpc", "--json")
        assert result.exit_code == 0, result.output
        # The same port does not serve the default protocol, HTTP.
        assert bench(url).exit_code == 3


def test_table_and_conclusions_go_to_stdout(url: str) -> None:
    result = bench(url, "--concurrency", "1,2", "--draft-tokens", "2,4")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    arms = [line.split()[:2] for line in lines if line.split()[1:2] in (["off"], ["2"], ["4"])]
    assert arms == [["1", "off"], ["1", "2"], ["1", "4"], ["2", "off"], ["2", "2"], ["2", "4"]]
    assert "concurrency 1: " in result.stdout
    assert "recommend" in result.stdout
    assert result.stderr == ""


def test_json_is_a_single_report(url: str) -> None:
    result = bench(url, "--json", "--draft-tokens", "4")
    assert result.exit_code == 0, result.output
    [line] = result.stdout.splitlines()
    report = Report.from_json(json.loads(line))
    assert report.url == url
    assert [arm.draft_tokens for arm in report.levels[0].arms] == [0, 4]


@pytest.mark.slow
def test_csv_and_html_files_are_written(url: str, tmp_path: Path) -> None:
    csv, html = tmp_path / "report.csv", tmp_path / "report.html"
    result = bench(url, "--csv", str(csv), "--html", str(html))
    assert result.exit_code == 0, result.output
    assert csv.read_text("utf-8").startswith("Concurrency,Draft Tokens,Metric,avg,")
    assert "<svg" in html.read_text("utf-8")


def test_prompts_come_from_options(simulated: Simulated, url: str, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "one"}\n{"prompt": "two"}\n', "utf-8")
    assert bench(url, "--prompts-file", str(file)).exit_code == 0
    assert {given["text_input"] for given in simulated.seen} == {b"one", b"two"}


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--concurrency", "1,x"], 2, "write numbers with commas"),
        (["--concurrency", "0"], 2, "concurrency is 0"),
        (["--draft-tokens", "0"], 2, "draft tokens is 0"),
        (["--html", "/no/such/folder/report.html"], 2, "name a file in a folder"),
        (["--prompts-file", "/no/such/file"], 2, "cannot be read"),
        (["--model", "ensemble"], 2, "no input num_draft_tokens"),
        (["--model", "absent"], 1, "unknown model"),
        (["--baseline-model", "x"], 2, "--baseline-model needs --baseline-url"),
        (["--url", "http://host:9"], 2, "http://localhost:9000/v1"),
        (["--url", "127.0.0.1:9"], 3, "connection to 127.0.0.1:9 failed"),
        (["--metrics", "127.0.0.1:9"], 3, "no metrics at"),
    ],
)
def test_invalid_benchmark_is_reported_in_one_sentence(
    url: str, arguments: list[str], status: int, message: str
) -> None:
    result = bench(url, *arguments)
    assert result.exit_code == status
    assert message in result.stderr
    assert result.stderr.startswith("specdec: ")
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


def test_a_service_is_not_compared_with_itself(url: str) -> None:
    result = bench(url, "--baseline-url", url)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"specdec: baseline url {url} is the measured service itself")
    assert len(result.stderr.splitlines()) == 1


def test_a_single_arm_shows_no_speedup(url: str) -> None:
    result = bench(url, "--single")
    assert result.exit_code == 0, result.output
    assert "no baseline was measured, so no speed-up is known" in result.stdout
    both = bench(url, "--single", "--baseline-url", "127.0.0.1:9")
    assert (both.exit_code, "leave out one of them" in both.stderr) == (2, True)


@pytest.mark.slow
def test_html_of_a_single_arm_has_plots(url: str, tmp_path: Path) -> None:
    html = tmp_path / "report.html"
    result = bench(url, "--single", "--html", str(html), "--csv", str(tmp_path / "report.csv"))
    assert result.exit_code == 0, result.output
    assert "<svg" in html.read_text("utf-8")


def test_html_without_matplotlib_is_refused_before_the_measurement(
    url: str, tmp_path: Path, simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specdec.tools.cli.bench.find_spec", lambda _: None)
    result = bench(url, "--html", str(tmp_path / "report.html"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "run in the checkout: pip install '.[client,plots]'" in result.stderr
    assert simulated.seen == []


def test_too_many_errors_exit_with_1(simulated: Simulated, url: str) -> None:
    simulated.refuse = 6
    result = bench(url)
    assert result.exit_code == 1
    assert "requests failed: the server at" in result.stdout
    assert "no more of these" in result.stdout


@pytest.mark.slow
def test_lost_connection_exits_with_3_and_keeps_the_results(
    simulated: Simulated, url: str, tmp_path: Path
) -> None:
    simulated.stops_at = 12
    html = tmp_path / "report.html"
    result = bench(url, "--requests", "40", "--html", str(html))
    assert result.exit_code == 3
    assert "the numbers cover the requests before that" in result.stdout
    assert "It did not complete" in html.read_text("utf-8")


# A test run in the background ignores SIGINT, and its child processes inherit this.
INTERRUPTIBLE = """
import signal
from specdec.tools.cli import main

signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""


@pytest.mark.slow
def test_ctrl_c_keeps_the_measurements(simulated: Simulated, url: str) -> None:
    simulated.target_seconds = 0.01
    command = [sys.executable, "-c", INTERRUPTIBLE, "bench", "--url", url, "--json"]
    with subprocess.Popen(
        [*command, "--requests", "1000", "--output-tokens", "4"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert simulated.reached(20).wait(DEADLINE_SECONDS)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 130, errors
    assert errors == ""
    report = Report.from_json(json.loads(output))
    assert report.ended == "interrupted"
    assert report.requests > 0
