"""`arguments.yaml` of backend VLLM has what the sources of installed versions have."""

import pytest
import yaml

from specdec.api.versions import at_least
from support import vllm_arguments
from support.vllm_arguments import Row
from support.vllm_tests import installed


def form(rows: list[Row], version: str) -> Row | None:
    """Return the row of a version without its versions."""
    for row in rows:
        ended = "before" in row and at_least(version, row["before"])
        if at_least(version, row["since"]) and not ended:
            return {key: value for key, value in row.items() if key not in ("since", "before")}
    return None


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(version, marks=pytest.mark.vllm(gibibytes=0.1, version=version))
        for version in ("0.24.0", "0.27.1", "0.32.0")
    ],
)
def test_every_argument_is_listed_with_its_type(version: str) -> None:
    table = yaml.safe_load(vllm_arguments.FILE.read_text("utf-8"))
    actual = vllm_arguments.arguments(installed(version).site_packages)

    assert actual.keys() <= {*table["names"], *table["fields"], *table["refused"]}
    for name, rows in table["names"].items():
        expected = actual.get(name)
        if expected is not None and name in table["limited"]:
            assert expected["type"] == "text", name
            expected = {"values": table["limited"][name]}
        assert form(rows, version) == expected, name
