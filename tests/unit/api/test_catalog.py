"""The catalogue of published pairs, `specdec catalog`, and the hint of `specdec plan`."""

import json
from collections import Counter
from datetime import date
from typing import Any

import pytest
from typer.testing import CliRunner

from specdec.api.catalog import Pair, of, pairs
from specdec.api.matrix import support
from specdec.api.speculation import Method
from specdec.tools.cli.app import app
from support.quickstarts import ROOT

# Methods whose draft tokens come from the checkpoint of the target.
IN_THE_TARGET = {"MTP"}


def run(*arguments: str) -> Any:
    """Return the result of a command."""
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize("pair", pairs(), ids=lambda pair: f"{pair.target} {pair.repository}")
def test_backends_of_a_row_have_its_method(pair: Pair) -> None:
    assert Method(pair.method) is not Method.NONE
    assert (pair.repository is None) == (pair.method in IN_THE_TARGET)
    assert all("/" in name for name in (pair.target, pair.repository or pair.target))
    for backend in pair.backends:
        row = support(backend)
        assert any(row.serves(pair.method, version) for version in row.versions)


def test_rows_are_unique_and_dated() -> None:
    count = Counter((pair.target.lower(), pair.method, pair.repository) for pair in pairs())
    assert max(count.values()) == 1
    assert len({pair.target for pair in pairs()}) >= 60
    assert all(date.fromisoformat(pair.checked) and pair.source for pair in pairs())


def test_heads_in_the_layout_of_speculators_are_for_backends_that_load_it() -> None:
    for pair in pairs():
        if pair.repository and "speculator" in pair.repository:
            assert all("speculators" in support(backend).head_layouts for backend in pair.backends)


def test_catalog_lists_a_target_in_any_case_or_by_a_part() -> None:
    whole = json.loads(run("catalog", "openai/GPT-OSS-120B", "--json").stdout)["pairs"]
    assert {row["target"] for row in whole} == {"openai/gpt-oss-120b"}
    part = json.loads(run("catalog", "gpt-oss", "--json").stdout)["pairs"]
    assert len(part) > len(whole)
    assert "nvidia/gpt-oss-120b-Eagle3" in run("catalog", "gpt-oss-120b").stdout


def test_catalog_names_a_method_for_a_target_without_a_row() -> None:
    result = run("catalog", "acme/unknown")
    assert result.exit_code == 1
    assert result.stderr == (
        "no pair is known for acme/unknown: `specdec init` writes a manifest without one\n"
    )


def test_plan_names_the_other_pairs_of_its_target() -> None:
    sample = str(ROOT / "manifests/samples/pytorch-eagle3.yaml")
    planned = json.loads(run("plan", "-f", sample, "--json").stdout)["pairs"]
    used = "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B"
    assert used in {pair.repository for pair in of("meta-llama/Llama-3.3-70B-Instruct")}
    others = {pair.repository for pair in of("meta-llama/Llama-3.3-70B-Instruct")} - {used}
    assert {row["repository"] for row in planned} == others
