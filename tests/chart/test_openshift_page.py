"""The values of the page about OpenShift are those that the chart is rendered with."""

import re
from pathlib import Path

import yaml

from chart.sets import OPENSHIFT

PAGE = Path(__file__).parents[2] / "docs" / "openshift.md"


def test_page_has_the_values_that_remove_the_ids() -> None:
    blocks = re.findall(r"(?ms)^```yaml\n(.*?)^```", PAGE.read_text("utf-8"))
    assert {"podSecurityContext": OPENSHIFT} in [yaml.safe_load(block) for block in blocks]
