"""The table in CONTRIBUTING names existing files, and the same counts as these tests."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
# The paths of the table are relative to these folders.
TOPS = ("", "operator/specdec", "operator/bls/specdec-bls/src", "charts/specdec-operator")
ROW = re.compile(r"^\| an? (.+?) \| (1 package, )?(\d) \| (.+) \|$", re.MULTILINE)


def test_table_names_ten_changes_and_existing_files() -> None:
    rows = ROW.findall((ROOT / "CONTRIBUTING.md").read_text())
    assert [int(count) for _, _, count, _ in rows] == [3, 1, 5, 2, 1, 2, 2, 4, 2, 4]
    for change, _, _, named in rows:
        paths = [path for path in re.findall(r"`([\w/.]+)`", named) if "/" in path]
        assert paths or change == "Helm value", change
        for path in paths:
            # A name in capitals is a placeholder for the file that the change adds.
            known = re.sub(r"/[A-Z]+(\.py|/)$", "", path)
            assert any((ROOT / top / known).exists() for top in TOPS), f"{change}: {path}"
