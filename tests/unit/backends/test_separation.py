"""Only the packages of backends and methods name a backend or method; others use attributes."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import specdec
from specdec import backends
from specdec.api.matrix import matrix
from specdec.api.speculation import Method

PACKAGE = Path(specdec.__file__).parent
# The name of a backend or method, and no longer word such as TensorRT-LLM or Lookaheads.
NAMES = re.compile(rf"\b({'|'.join([*matrix(), *(m for m in Method if m.key != 'none')])})\b(?!-)")
BLOCKS = {method.key for method in Method}
# The packages of methods and backends, and programs of other containers, which lack attributes.
OWN = ("api/methods/", "backends/", "images/")
REVIEWED = {
    "api/speculation.py": "the enum of methods, and the union of their blocks",
    "tools/certify/matrix.py": "a list of methods to try, as the samples are",
    "tools/certify/request.py": "methods whose checkpoints a user names, and an example of one",
    "tools/certify/resources.py": "a resource for each method to try",
    "tools/cli/app.py": "examples of commands",
    "tools/cli/certify.py": "the default of an option",
    "tools/cli/certify_options.py": "the help of options",
    "tools/cli/migrate.py": "the only value of an option",
    "client/infer.py": "the sizes of lookahead decoding in a request",
    "controller/settings.py": "the operator's own setting of one backend's default image",
    "jobs/registry.py": "Reference is an OCI reference there",
    "jobs/artifact_inspection.py": "reads from the files of heads which method they are made for",
}


def named(tree: ast.Module) -> Iterator[str]:
    """Yield the uses of enum members, of blocks of methods, and of names in other strings."""
    documents = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            enum = node.value.id if isinstance(node.value, ast.Name) else ""
            if node.attr in BLOCKS or (enum in ("Backend", "Method") and node.attr.isupper()):
                yield f"line {node.lineno}: {enum or '...'}.{node.attr}"
        elif (
            isinstance(node, ast.Constant)
            and id(node) not in documents
            and NAMES.search(str(node.value))
        ):
            yield f"line {node.lineno}: {node.value!r:.60}"


@cache
def uses() -> dict[str, list[str]]:
    files = {str(path.relative_to(PACKAGE)): path for path in PACKAGE.rglob("*.py")}
    outside = {name: path for name, path in files.items() if not name.startswith(OWN)}
    lines = {name: list(named(ast.parse(path.read_text()))) for name, path in outside.items()}
    return {name: list_ for name, list_ in lines.items() if list_}


def test_nothing_outside_their_packages_names_a_backend_or_a_method() -> None:
    assert {name: lines for name, lines in uses().items() if name not in REVIEWED} == {}


def test_every_reviewed_exception_is_still_one() -> None:
    assert REVIEWED.keys() == uses().keys()


@pytest.mark.parametrize(
    "text", ["Backend.TENSORRT", "x.eagle", "x = 'Eagle'", "f'{x} of DraftTarget'"]
)
def test_the_search_finds_a_name(text: str) -> None:
    assert list(named(ast.parse(text)))


@pytest.mark.parametrize(
    "text", ["x = 'TensorRT-LLM'", "x = 'Lookaheads'", "def f():\n    'As Eagle.'", "x.key"]
)
def test_the_search_passes_other_names(text: str) -> None:
    assert not list(named(ast.parse(text)))


def test_every_served_backend_is_a_package_and_every_method_a_module() -> None:
    folder = Path(backends.__file__).parent
    for name, row in matrix().items():
        assert (folder / name.lower() / "__init__.py").exists() == row.served
        own = folder / name.lower() / "methods"
        modules = own if own.exists() else folder / "methods"
        for method in row.methods:
            assert (modules / f"{Method(method).key}.py").exists()
