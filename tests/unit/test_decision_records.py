"""Every decision record has a number of its own, a title and a status."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "adr"
RECORDS = sorted(FOLDER.glob("*.md"))
STATUS = re.compile(r"Status: (?:Accepted|Superseded by \[(\d{4})\]\(\1-[a-z0-9-]+\.md\))")


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.stem)
def test_a_record_has_title_and_status(record: Path) -> None:
    title, blank, status, *_ = record.read_text("utf-8").splitlines()
    assert title.startswith(f"# {record.name[:4]} ")
    assert blank == ""
    assert STATUS.fullmatch(status), status


def test_numbers_are_unique() -> None:
    numbers = [record.name[:4] for record in RECORDS]
    assert len(numbers) == len(set(numbers)) > 50
