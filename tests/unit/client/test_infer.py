"""Requests to one engine: formats, drafts, cancellation and comparison of the output."""

import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster.processes import DEADLINE_SECONDS
from specdec.client.infer import agreement
from specdec.tools.cli.app import app
from unit.client.fake_pair import Pair, counting, served

ROOT = Path(__file__).resolve().parents[3]
TOKENIZER = ROOT / "operator" / "specdec" / "images" / "pair" / "target"


@pytest.fixture
def pair() -> Pair:
    return Pair()


@pytest.fixture
def url(pair: Pair) -> Iterator[str]:
    with served(pair) as address:
        yield address


def run(url: str, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["infer", "--url", url, "--max-tokens", "3", *arguments])
    assert "Traceback" not in result.output
    return result.exit_code, result.stdout, result.stderr


def test_output_has_the_format_of_the_input(url: str, tmp_path: Path) -> None:
    assert run(url, "--tokens", "97, 98")[:2] == (0, "99,100,101\n")
    file = tmp_path / "ids.csv"
    file.write_text("97\n98\n", "utf-8")
    assert run(url, "--tokens-file", str(file))[:2] == (0, "99,100,101\n")
    assert run(url, "--tokens", "[97]", "--format", "json")[:2] == (0, "[98, 99, 100]\n")


def test_text_is_tokenized_without_the_server(pair: Pair, url: str) -> None:
    arguments = ("--format", "text", "--tokenizer", str(TOKENIZER), "--tokens", "def f(")
    status, text, _ = run(url, *arguments)
    assert status == 0
    assert text.strip()
    assert [name for name, _ in pair.seen] == ["tensorrt_llm"]


def test_drafts_are_sent_and_the_summary_is_json(pair: Pair, url: str) -> None:
    status, text, _ = run(url, "--tokens", "97", "--draft", "98,50", "--json")
    assert status == 0
    assert json.loads(text)["tokens"] == [98, 99]
    assert pair.seen[0][1]["draft_input_ids"].tolist() == [[98, 50]]


def test_model_without_streaming_gets_a_unary_call(url: str) -> None:
    assert run(url, "--model", "tensorrt_llm_draft", "--tokens", "97")[1] == "98,99,63\n"
    status, _, stderr = run(url, "--model", "tensorrt_llm_draft", "--tokens", "97", "--stream")
    assert (status, "does not stream" in stderr) == (2, True)


def test_cancellation_exits_with_0_and_a_timeout_with_3(pair: Pair, url: str) -> None:
    finished = threading.Event()

    def slow(ids: Sequence[int]) -> int:
        finished.wait(DEADLINE_SECONDS)
        return counting(ids)

    pair.target = slow
    try:
        status, text, stderr = run(url, "--tokens", "97", "--cancel-after", "100")
        assert (status, text) == (0, "\n")
        assert "cancelled" in stderr
        status, _, stderr = run(url, "--tokens", "97", "--timeout", "0.1")
        assert (status, "within 0.1 s" in stderr) == (3, True)
    finally:
        finished.set()


@pytest.mark.parametrize(
    ("expected", "threshold", "status"),
    [("98,99,100", "1", 0), ("98,99,101", "1", 1), ("98,99,101", "0.6", 0), ("98", "0.5", 1)],
)
def test_output_is_compared_with_the_expected_output(
    url: str, expected: str, threshold: str, status: int
) -> None:
    code, _, stderr = run(url, "--tokens", "97", "--expect", expected, "--threshold", threshold)
    assert code == status
    assert "of the positions are equal" in stderr


@pytest.mark.parametrize(
    ("expected", "got", "share", "first"),
    [
        ([], [], 1.0, None),
        ([1, 2], [1, 2], 1.0, None),
        ([1, 2, 3, 4], [1, 5, 3, 4], 0.75, 1),
        ([1, 2], [1, 2, 3, 4], 0.5, 2),
        ([1], [], 0.0, 0),
    ],
)
def test_agreement_is_the_share_of_equal_positions(
    expected: list[int], got: list[int], share: float, first: int | None
) -> None:
    assert agreement(expected, got) == (share, first)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "there is no input"),
        (("--tokens", ""), "no input tokens"),
        (("--tokens", "1,x"), "is not a list of ids"),
        (("--tokens", "-4"), "token id -4"),
        (("--tokens", "1", "--tokens-file", "-"), "either --tokens or --tokens-file"),
        (("--tokens", "1", "--format", "json"), "not a list of ids"),
        (("--tokens", "[true]", "--format", "json"), "not a list of ids"),
        (("--tokens", "[1", "--format", "json"), "not valid JSON"),
        (("--tokens", "a", "--format", "text"), "needs a tokenizer"),
        (("--tokens", "a", "--format", "text", "--tokenizer", "/no"), "cannot be read"),
        (("--tokens", "1", "--threshold", "2"), "--threshold is 2"),
        (("--tokens", "1", "--cancel-after", "0"), "--cancel-after is 0"),
        (("--tokens", "1", "--max-tokens", "0"), "max tokens is 0"),
        (("--tokens", "1", "--top-k", "3"), "no input top_k"),
    ],
)
def test_invalid_input_is_reported_in_one_sentence(
    url: str, arguments: tuple[str, ...], message: str
) -> None:
    status, _, stderr = run(url, *arguments)
    assert status == 2
    assert message in stderr
    assert stderr.startswith("specdec: ")
