"""Golden files stay small, and a change of one field touches few of them."""

from typing import Any
from unittest.mock import patch

import pytest

from golden import stored
from golden.documents import documents
from golden.stored import DIGESTS
from specdec.desired import serving
from specdec.triton import parameters, repository
from support.crd_cases import TABLES
from support.golden_cases import CASES, HERE, generate

LINES = 18_000
FILES = 25


def touched() -> set[str]:
    """Return the golden files that update.py would change now."""
    trees = {case: documents(generate(case)) for case in CASES}
    # Every change of a digest changes the list of digests.
    files = {DIGESTS.name}
    for case in CASES:
        now, before = stored.files(case, trees), stored.stored(case)
        files |= {
            f"{case}/{name}"
            for name in now.keys() | before.keys()
            if now.get(name) != before.get(name)
        }
    return files


def lines(folder: Any) -> int:
    return sum(
        path.read_bytes().count(b"\n")
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    )


def test_golden_files_and_cases_stay_readable() -> None:
    assert lines(HERE) + lines(TABLES) < LINES


@pytest.mark.slow
def test_a_new_field_of_the_targets_configuration_touches_few_files() -> None:
    """A new optional field with a default adds a key to every `tensorrt_llm/config.pbtxt`."""
    original = parameters.engine_parameters

    def more(*args: Any, is_target: bool) -> Any:
        rows = original(*args, is_target=is_target)
        return (*rows, ("new_option", "7")) if is_target else rows

    with patch.object(repository, "engine_parameters", more):
        files = touched()
    assert "reference-draft-target/repository/tensorrt_llm/config.pbtxt" in files
    assert len(files) <= FILES, files


@pytest.mark.slow
def test_a_new_field_of_every_server_touches_few_files() -> None:
    original = serving.deployment

    def more(*args: Any, **kwargs: Any) -> Any:
        body = original(*args, **kwargs)
        body["metadata"]["labels"]["example.com/new"] = "x"
        body["spec"]["template"]["spec"]["hostUsers"] = False
        return body

    with patch.object(serving, "deployment", more):
        files = touched()
    assert "reference-draft-target/deployment.yaml" in files
    assert len(files) <= FILES, files
