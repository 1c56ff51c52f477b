"""The condition reasons: complete, in plain sentences, and the source of all lists of reasons."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from specdec.api.condition_types import OPTIONAL, Type
from specdec.api.reasons import GROUPS, REASONS, Reason, Severity, parse
from support import reason_tables
from support.reason_tables import OUTPUTS, ROOT

PAYLOAD = ROOT / "operator" / "specdec" / "images" / "build"
NEW = """
    TOY = _SECTION.blocked(
        "Toy", "a toy is in front of the source", "remove the toy"
    )
"""


def test_every_group_of_reasons_is_listed() -> None:
    assert set(GROUPS) == set(Reason.__subclasses__())
    assert len(set(REASONS)) == len(REASONS), "two groups define the same reason"


@pytest.mark.parametrize("reason", REASONS)
def test_a_reason_is_a_word_with_one_sentence_and_a_resolution(reason: Reason) -> None:
    assert reason.name.replace("_", "") == str(reason).upper()
    assert re.fullmatch(r"([A-Z][a-z]+)+", reason)
    for text in (reason.meaning, reason.resolution):
        assert not re.search(r"\||\n|\.$|  ", text), text
    assert reason.meaning
    assert reason.resolution or reason.severity is Severity.PROGRESS
    assert len(set(reason.types)) == len(reason.types) > 0
    assert bool(reason.health) != (set(reason.types) <= OPTIONAL)


def test_an_unknown_word_is_no_reason() -> None:
    assert parse("Queued") in REASONS
    assert not parse("queued")


def test_what_is_generated_from_reasons_is_up_to_date() -> None:
    assert reason_tables.outdated() == [], "run make generate"


def raised() -> set[str]:
    """Return the reasons that build programs raise; their images lack the `specdec` package."""
    reasons = set()
    for path in PAYLOAD.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "BuildError"
            if isinstance(node, ast.Call) and named:
                assert isinstance(node.args[0], ast.Constant), f"{path.name}:{node.lineno}"
                reasons.add(str(node.args[0].value))
    return reasons


def test_build_programs_raise_known_problems_of_their_condition() -> None:
    raised_reasons = raised()
    assert len(raised_reasons) > 8
    for text in raised_reasons:
        reason = parse(text)
        assert reason is not None, text
        assert reason.severity is not Severity.PROGRESS, text
        assert Type.ENGINES_READY in reason.types, text


def contents(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
        for path in root.rglob("*")
        if path.suffix in (".py", ".md", ".yaml")
    }


def test_a_new_reason_is_one_change_by_hand(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "operator/specdec/api", tmp_path / "operator/specdec/api")
    for name in ("operator/specdec/__init__.py", "tests/support/reason_tables.py", *OUTPUTS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    before = contents(tmp_path)
    fetch = "operator/specdec/api/reasons/fetch.py"
    with (tmp_path / fetch).open("a", encoding="utf-8") as file:
        file.write(NEW)

    paths = f"{tmp_path}/operator:{tmp_path}/tests"
    subprocess.run(
        [sys.executable, "-m", "support.reason_tables"],
        env={"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tmp_path,
        check=True,
    )

    after = contents(tmp_path)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed - set(OUTPUTS) == {fetch}
    assert (
        "| `Toy` | a toy is in front of the source | remove the toy |"
        in (after["docs/conditions.md"].split("## ModelsFetched")[1].split("## Compatible")[0])
    )
    assert "      Toy = true,\n" in after["manifests/argocd/argocd-cm.yaml"]
