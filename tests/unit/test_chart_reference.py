"""The values table in the README of each chart."""

from pathlib import Path

import pytest
import yaml

from support import chart_reference


@pytest.mark.parametrize("document", chart_reference.DOCUMENTS, ids=lambda path: path.parent.name)
def test_table_is_that_of_the_values(document: Path) -> None:
    assert document.read_text("utf-8") == chart_reference.render(document), "run make generate"


@pytest.mark.parametrize("document", chart_reference.DOCUMENTS, ids=lambda path: path.parent.name)
def test_every_value_has_a_row(document: Path) -> None:
    text = document.read_text("utf-8")
    for name in yaml.safe_load(document.with_name("values.yaml").read_text("utf-8")):
        assert f"\n| `{name}" in text
