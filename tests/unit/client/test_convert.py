"""Conversion of data sets: detection of formats, errors with lines, and atomic writes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specdec.client import convert, dataset
from specdec.client.dataset import Entry
from specdec.client.errors import BadRequestError
from specdec.tools.cli.app import app

HUMANEVAL = (
    '{"task_id": "HumanEval/0", "prompt": "def f(a):\\n", "canonical_solution": "    pass"}\n'
    '{"task_id": "HumanEval/1", "prompt": "def g():\\n", "test": ""}\n'
)
ALPACA = """[
  {"instruction": "Name three colours.", "input": "", "output": "Red, green, blue."},
  {"instruction": "Summarize:", "input": "It rained.", "output": ""}
]
"""
SHAREGPT = """[{"id": "a", "conversations": [
    {"from": "gpt", "value": "Welcome"}, {"from": "human", "value": "Hi?"},
    {"from": "gpt", "value": "one two three"}]},
 {"id": "b", "conversations": [{"from": "gpt", "value": "alone"}]},
 {"id": "c", "conversations": [{"from": "user", "value": "And?"}]}]
"""
TURNS = '{"question_id": 1, "turns": ["first", "second"]}\n'
TEXT = "def f(x):\n\n  second line\n"


@pytest.mark.parametrize(
    ("text", "kind", "entries"),
    [
        (HUMANEVAL, "humaneval", [Entry("def f(a):\n"), Entry("def g():\n")]),
        (ALPACA, "alpaca", [Entry("Name three colours.", 4), Entry("It rained. Summarize:")]),
        (SHAREGPT, "sharegpt", [Entry("Hi?", 4), Entry("And?")]),
        (TURNS, "turns", [Entry("first"), Entry("second")]),
        (TEXT, "text", [Entry("def f(x):"), Entry("  second line")]),
        ('{"prompt": "a", "max_tokens": 5}\n', "jsonl", [Entry("a", 5)]),
        ('[{"prompt": "a"}]', "jsonl", [Entry("a")]),
    ],
)
def test_formats_are_detected(text: str, kind: str, entries: list[Entry]) -> None:
    converted = convert.convert(text, "file")
    assert (converted.kind, converted.entries) == (kind, entries)
    assert convert.convert(text, "file", kind) == converted


def test_text_format_accepts_lines_that_resemble_json() -> None:
    text = "[x for x in\n{1: 2,\n"
    assert len(convert.convert(text, "file", "text").entries) == 2
    with pytest.raises(BadRequestError, match="give --from text"):
        convert.convert(text, "file")


def test_conversations_without_a_human_are_counted() -> None:
    assert convert.convert(SHAREGPT, "file").without == 1


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("", None, "file holds no prompt"),
        ("[]", None, "file has an unknown format"),
        ("[]", "alpaca", "file holds no prompt"),
        ('{"question": "a"}', None, "line 1 has an unknown format; name it with --from humaneval"),
        (f"{HUMANEVAL}nonsense\n", None, "line 3 is not JSON"),
        (f"{HUMANEVAL}[1]\n", None, "line 3 is not an object"),
        (f"{HUMANEVAL}" + '{"task_id": 4}\n', None, "line 3 has no prompt"),
        ('[\n{"instruction": "a"},\n\n{"instruction": 4}]', None, "line 4 has no instruction"),
        ('[\n{"instruction": "a"}\n{"instruction": "b"}]', None, "line 2 is followed by neither"),
        ('[\n{"instruction": "a"},\n{"instr', None, "line 3 is not JSON"),
        ('[\n{"instruction": "a"},\n', None, "line 3 is not JSON"),
        ('{"conversations": 4}', None, "line 1 has no conversations"),
        ('{"conversations": ["a"]}', None, "line 1 has no conversations"),
        ('{"turns": "a"}', None, "line 1 has no turns"),
        ('{"turns": [""]}', None, "line 1 has no prompt"),
        ('{"prompt": "\\ud800"}', None, "half a surrogate pair"),
        ('[{"prompt": "a", "max_tokens": -1}]', None, "line 1: max_tokens is -1"),
        ("[" * 100_000, None, "line 1 is not JSON"),
        ('{"a":' * 100_000, None, "line 1 is not JSON"),
    ],
)
def test_error_names_the_line(text: str, kind: str | None, message: str) -> None:
    with pytest.raises(BadRequestError) as raised:
        convert.convert(text, "file", kind)
    assert message in str(raised.value)


def run(*arguments: str, given: str | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["dataset", "convert", *arguments], input=given)
    return result.exit_code, result.stdout, result.stderr


def test_command_writes_a_data_set(tmp_path: Path) -> None:
    source, target = tmp_path / "HumanEval.jsonl", tmp_path / "out.jsonl"
    source.write_text(HUMANEVAL, "utf-8")
    target.write_text("old", "utf-8")
    status, stdout, stderr = run(str(source), "-o", str(target), "--max-tokens", "9")
    assert (status, stdout) == (0, "")
    assert stderr == f"2 prompts, read as humaneval, in {target}\n"
    assert dataset.read(target) == [Entry("def f(a):\n", 9), Entry("def g():\n", 9)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["HumanEval.jsonl", "out.jsonl"]


def test_command_writes_what_load_generators_read() -> None:
    status, stdout, _ = run("-", "--to", "genai-perf", "--limit", "2", given=SHAREGPT)
    assert status == 0
    assert json.loads(stdout) == {
        "data": [
            {"text_input": ["Hi?"], "max_tokens": [4]},
            {"text_input": ["And?"], "max_tokens": [64]},
        ]
    }
    status, stdout, stderr = run("-", "--to", "genai-perf-lines", given=SHAREGPT)
    assert [json.loads(line) for line in stdout.splitlines()] == [
        {"text": "Hi?"},
        {"text": "And?"},
    ]
    assert "1 records have no prompt" in stderr


def test_invalid_line_leaves_the_output_unchanged(tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    target.write_text("old", "utf-8")
    status, _, stderr = run("-", "-o", str(target), given=f"{HUMANEVAL}nonsense\n")
    assert status == 2
    assert stderr.startswith("specdec: stdin, line 3 is not JSON")
    assert len(stderr.splitlines()) == 1
    assert target.read_text("utf-8") == "old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-", "--limit", "0"], "--limit is 0; set it to 1 or more"),
        (["-", "--max-tokens", "-4"], "--max-tokens is -4"),
        (["/no/such/file"], "/no/such/file cannot be read"),
        (["-", "-o", "/no/such/folder/out"], "/no/such/folder/out cannot be written"),
    ],
)
def test_invalid_options_are_reported_in_one_sentence(arguments: list[str], message: str) -> None:
    status, _, stderr = run(*arguments, given=TEXT)
    assert status == 2
    assert message in stderr
    assert len(stderr.splitlines()) == 1
