"""The page about OpenShift has the same values as the chart's rendering tests."""

import re
from pathlib import Path

import yaml

from chart.sets import OPENSHIFT

PAGE = Path(__file__).parents[2] / "docs" / "openshift.md"


def test_page_has_the_values_that_remove_the_ids() -> None:
    blocks = re.findall(r"(?ms)^```yaml\n(.*?)^```", PAGE.read_text("utf-8"))
    assert {"podSecurityContext": OPENSHIFT} in [yaml.safe_load(block) for block in blocks]
