"""CONTRIBUTING names files that exist, and as many as the tests of this folder count."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
# Where the paths of the table begin, besides the root.
TOPS = ("", "operator/specdec", "operator/bls/specdec-bls/src", "charts/specdec-operator")
ROW = re.compile(r"^\| an? (.+?) \| (1 package, )?(\d) \| (.+) \|$", re.MULTILINE)


def test_the_table_names_ten_changes_and_files_that_exist() -> None:
    rows = ROW.findall((ROOT / "CONTRIBUTING.md").read_text())
    assert [int(count) for _, _, count, _ in rows] == [3, 1, 5, 2, 1, 2, 2, 4, 2, 4]
    for change, _, _, which in rows:
        paths = [path for path in re.findall(r"`([\w/.]+)`", which) if "/" in path]
        assert paths or change == "Helm value", change
        for path in paths:
            # A name in capitals stands for the file that the change adds.
            known = re.sub(r"/[A-Z]+(\.py|/)$", "", path)
            assert any((ROOT / top / known).exists() for top in TOPS), f"{change}: {path}"
