"""Data sets: built-in prompts, limits of entries, and invalid lines."""

from pathlib import Path

import pytest

from specdec.client import dataset
from specdec.client.dataset import Entry
from specdec.client.errors import BadRequestError


def test_hundred_built_in_prompts_are_distinct() -> None:
    prompts = [entry.prompt for entry in dataset.built_in()]
    assert len(set(prompts)) == len(prompts) == 100
    assert max(map(len, prompts)) < 200


def test_written_lines_are_read_unchanged(tmp_path: Path) -> None:
    entries = [Entry("a\u2028b\n"), Entry("ü", 7)]
    file = tmp_path / "set.jsonl"
    file.write_text(f"\n{dataset.lines(entries)}\n", "utf-8")
    assert dataset.read(file) == entries


def test_other_keys_are_ignored() -> None:
    assert dataset.parse('{"prompt": "a", "id": 4, "max_tokens": null}', "set") == [Entry("a")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", "is not JSON"),
        ('["a"]', "has no prompt"),
        ('{"prompt": ""}', "has no prompt"),
        ('{"prompt": 4}', "has no prompt"),
        ('{"prompt": "a", "max_tokens": 0}', "max_tokens is 0; set it to 1 or more"),
        ('{"prompt": "a", "max_tokens": true}', "max_tokens is True"),
        ('{"prompt": "a", "max_tokens": "8"}', "max_tokens is '8'"),
    ],
)
def test_invalid_line_is_reported_with_its_number(line: str, message: str) -> None:
    with pytest.raises(BadRequestError, match="set, line 3") as raised:
        dataset.parse(f'{{"prompt": "a"}}\n\n{line}\n', "set")
    assert message in str(raised.value)


def test_empty_data_set_and_missing_file_are_errors(tmp_path: Path) -> None:
    with pytest.raises(BadRequestError, match="set is empty; write one"):
        dataset.parse("\n \n", "set")
    with pytest.raises(BadRequestError, match="cannot be read"):
        dataset.read(tmp_path / "absent.jsonl")
