"""Everything that the documents name exists: commands, files, links, conditions, reasons."""

import itertools
import re
import shlex
import tomllib
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specdec.api import conditions
from specdec.api.model import PLURAL
from specdec.cli.app import app
from specdec.pipeline.decide import CHAIN
from support.quickstarts import in_checkout

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def commands(document: Path) -> list[list[str]]:
    """Return the commands of the shell blocks and of the sentences, each split into arguments."""
    body = document.read_text(encoding="utf-8")
    lines = [
        line
        for block in re.findall(r"```sh\n(.*?)```", body, re.DOTALL)
        for line in block.splitlines()
    ]
    lines += re.findall(r"`((?:make|kubectl|specdec) [^`\n]+)`", body)
    return [arguments for line in lines if (arguments := shlex.split(line, comments=True))]


@cache
def help_of(*command: str) -> str:
    """Return the output of a command with `--help`."""
    result = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, command
    return result.output


ALL = [(d, c) for d in DOCUMENTS for c in commands(d)]


def test_there_are_commands_to_check() -> None:
    assert {c[0] for _, c in ALL} >= {"make", "kubectl", "specdec"}


@pytest.mark.parametrize(("document", "command"), [x for x in ALL if x[1][0] == "make"])
def test_make_targets_exist(document: Path, command: list[str]) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", text("Makefile"), re.MULTILINE))
    named = [word for word in command[1:] if "=" not in word]
    assert named
    assert set(named) <= targets, document


def test_every_make_target_is_listed_by_help() -> None:
    makefile = text("Makefile")
    phony = set(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split())
    listed = set(re.findall(r"^([a-z0-9-]+):.*## ", makefile, re.MULTILINE))
    assert phony - {"help"} == listed - {"help"}


@pytest.mark.parametrize(("document", "command"), [x for x in ALL if x[1][0] == "kubectl"])
def test_files_given_to_kubectl_exist(document: Path, command: list[str]) -> None:
    for flag, value in itertools.pairwise(command):
        if flag in ("-f", "-k"):
            assert in_checkout(value).exists(), f"{document.name}: {value}"


def test_guides_wait_for_the_job_that_copies_the_models() -> None:
    """A resource that is created before the copy is complete fails with SourceNotFound."""
    copies = ["kubectl", "apply", "-f", "manifests/samples/reference-pair.yaml"]
    after = [next_ for (_, command), (_, next_) in itertools.pairwise(ALL) if command == copies]
    assert after
    for command in after:
        assert command[:4] == ["kubectl", "wait", "job/reference-pair", "--for=condition=Complete"]


@pytest.mark.parametrize(("document", "command"), [x for x in ALL if x[1][0] == "specdec"])
def test_specdec_options_exist(document: Path, command: list[str]) -> None:
    # These commands have subcommands.
    names = command[1:3] if command[1] in ("dataset", "image") else command[1:2]
    printed = help_of(*names)
    for word in command[2:]:
        if word.startswith("--"):
            assert word in printed, f"{document.name}: {word}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(ROOT)))
def test_links_have_targets(document: Path) -> None:
    body = document.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]+)\)", body)
    for link in links:
        assert (document.parent / link).exists(), link


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(ROOT)))
def test_folders_named_exist(document: Path) -> None:
    body = document.read_text(encoding="utf-8")
    paths = re.findall(r"`((?:operator|crds|manifests|tests|docs|charts)/[\w./-]*)`", body)
    for path in paths:
        assert (ROOT / path).exists(), path


def table(body: str, heading: str) -> list[str]:
    """Return the first column of the table under a heading."""
    section = body.split(f"\n{heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)


def test_every_reason_is_documented_and_no_other() -> None:
    documented = re.findall(r"^\| `(\w+)` \|", text("docs/conditions.md"), re.MULTILINE)
    known = conditions.PROBLEMS | conditions.PROGRESS
    assert set(documented) == known
    assert len(documented) == len(set(documented)), "a reason is explained twice"


def test_every_problem_has_a_resolution() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|(.*)\|$", text("docs/conditions.md"), re.MULTILINE)
    resolutions = {reason: resolution.strip() for reason, _, resolution in rows}
    assert {reason for reason in conditions.PROBLEMS if not resolutions[reason]} == set()


def test_conditions_stand_in_the_order_of_the_pipeline() -> None:
    types = [str(kind) for kind in conditions.Type]
    assert table(text("docs/concepts.md"), "## Status") == types
    headings = re.findall(r"^## (\w+)$", text("docs/conditions.md"), re.MULTILINE)
    assert headings == types


def test_reasons_in_the_table_of_conditions_are_known() -> None:
    section = text("docs/concepts.md").split("## Status", 1)[1].split("\n## ", 1)[0]
    cells = re.findall(r"^\| `\w+` \|[^|]*\|([^|]*)\|$", section, re.MULTILINE)
    reasons = {word for cell in cells for word in re.findall(r"`(\w+)`", cell)}
    assert len(reasons) > 10
    assert reasons <= conditions.PROBLEMS | conditions.PROGRESS


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert "make test" in text("README.md")
    last = text(".ci/run").strip().splitlines()[-1]
    assert last == "exec make test"


def manifest(page: str) -> str:
    """Return the first YAML block of a page."""
    block = re.search(r"^```yaml\n(.*?)^```", text(page), re.DOTALL | re.MULTILINE)
    assert block is not None, f"{page} has no manifest"
    return block[1]


def test_front_page_has_a_manifest_a_picture_and_a_number(tmp_path: Path) -> None:
    front = text("docs/index.md")
    assert manifest("docs/index.md") == manifest("README.md")
    file = tmp_path / "model.yaml"
    file.write_text(manifest("README.md"), "utf-8")
    shown = CliRunner().invoke(app, ["plan", "-f", str(file)])
    assert shown.exit_code == 0, shown.output
    assert "is accepted: DraftTarget on PyTorch" in shown.stdout
    assert "Deprecated" not in shown.stdout
    (picture,) = re.findall(r"!\[[^\]]+\]\((\S+)\)", front)
    assert (ROOT / "docs" / picture).is_file()
    assert re.search(r"\*\*\d+ %\*\*", front)


def test_pages_state_both_figures_of_the_loop() -> None:
    for page in ("README.md", "docs/index.md"):
        line = " ".join(text(page).split())
        assert re.search(r"6 % in one process and 70 % in sixteen", line), page


def test_reference_begins_with_twenty_fields() -> None:
    first = text("docs/api.md").split("## Start with these 20 fields")[1].split("\n## ")[0]
    assert len(re.findall(r"^\| `", first, re.MULTILINE)) == 20


def test_names_in_the_documents_are_those_of_the_api() -> None:
    crd = text("crds/speculativemodels.yaml")
    assert f"plural: {PLURAL}" in crd
    assert "specm" in crd


def test_the_page_of_the_architecture_names_modules_and_stages_that_exist() -> None:
    page = text("docs/architecture.md")
    modules = re.findall(r"`((?:controller|pipeline)/\w+\.py)`", page)
    assert len(modules) > 8
    assert [m for m in modules if not (ROOT / "operator/specdec" / m).is_file()] == []
    decide, bls = page.split("### 5. Decide")[1].split("## A request through the BLS")
    stages = re.findall(r"^\| `(\w+)` \|", decide, re.MULTILINE)
    assert stages == [stage.__name__ for stage in CHAIN]
    sources = re.findall(r"`([\w/]+\.rs)`", bls)
    folder = ROOT / "operator/bls/specdec-bls/src"
    assert len(sources) > 8
    assert [name for name in sources if not (folder / name).is_file()] == []


def test_layers_in_the_guide_are_those_of_the_contract() -> None:
    guide = text("CONTRIBUTING.md").split("## Layers")[1].split("\n- ")[0]
    shown = [set(re.findall(r"`([a-z_]+)`", layer)) for layer in guide.split(">")]
    contracts = tomllib.loads(text("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (layers,) = [c["layers"] for c in contracts if c["type"] == "layers"]
    assert shown == [set(layer.split(" | ")) for layer in layers]
