"""Only its own package names a backend, kind of server, method or Triton model.

Other code uses attributes. It neither compares such a name (`name_comparisons.py`) nor writes the
name of a backend or method. A few places do, for the reason that a table gives.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from specdec import backends
from specdec.api.matrix import matrix
from specdec.api.speculation import Method
from unit.name_comparisons import ROOT, hits

# By file: why it compares.
COMPARING = {
    "api/speculation.py": "the enum's own property of method None",
    "client/http_transport.py": "the platform of an ensemble, which has that name",
    "client/verification.py": "a value of --against",
    "images/backend/tensorrtllm/llm_api_engine/generation.py": "decoding types of TensorRT-LLM",
    "images/backend/tensorrtllm/llm_api_engine/settings.py": "decoding types of TensorRT-LLM",
    "images/build/build_engine.py": "its text is in the key of every engine",
    "images/build/image_check.py": "it runs in the image of a server, without this package",
    "images/build/image_imports.py": "the name of TensorRT-LLM's Python package",
    "jobs/artifact_inspection.py": "reads from the files of heads which method they are made for",
    "servers/openai_api.py": "the owner of a model, as servers with OpenAI's API list it",
}


def test_only_own_packages_compare_names() -> None:
    unexpected = [str(hit) for hit in hits() if hit.path not in COMPARING]
    assert not unexpected, "\n".join(unexpected)


def test_every_reviewed_file_still_compares_names() -> None:
    assert {hit.path for hit in hits()} >= set(COMPARING), "remove the others from COMPARING"


@pytest.mark.parametrize(
    "text",
    [
        'if model.backend == "PyTorch": pass',
        'if name in ("ensemble", other): pass',
        "if method is Method.EAGLE: pass",
        'match kind:\n    case "llm_api": pass',
        '_NAME = "Medusa"\nif method != _NAME: pass',
        "from specdec.triton.model_names import BLS as MODEL\nif model == MODEL: pass",
        'run = {"TensorRT": 1}[backend]',
    ],
)
def test_the_search_finds_comparisons(tmp_path: Path, text: str) -> None:
    (tmp_path / "module.py").write_text(text, "utf-8")
    assert len(hits(tmp_path)) == 1


def test_own_packages_may_compare(tmp_path: Path) -> None:
    own = tmp_path / "backends" / "pytorch"
    own.mkdir(parents=True)
    (own / "module.py").write_text('if name == "PyTorch": pass', "utf-8")
    assert hits(tmp_path) == []


# The name of a backend or method, and no longer word such as TensorRT-LLM or Lookaheads.
NAMES = re.compile(rf"\b({'|'.join([*matrix(), *(m for m in Method if m.key != 'none')])})\b(?!-)")
BLOCKS = {method.key for method in Method}
# The packages of methods and backends, and programs of other containers, which lack attributes.
OWN = ("api/methods/", "backends/", "images/")
NAMING = {
    "api/speculation.py": "the enum of methods, and the union of their blocks",
    "tools/certify/matrix.py": "a list of methods to try, as the samples are",
    "tools/certify/request.py": "methods whose checkpoints a user names, and an example of one",
    "tools/certify/resources.py": "a resource for each method to try",
    "tools/cli/app.py": "examples of commands",
    "tools/cli/certify.py": "the default of an option",
    "tools/cli/certify_options.py": "the help of options",
    "tools/cli/init.py": "the default of an option",
    "tools/cli/migrate.py": "the only value of an option",
    "tools/dry_run/first_manifest.py": "the method of a target without a known pair",
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
    files = {str(path.relative_to(ROOT)): path for path in ROOT.rglob("*.py")}
    outside = {name: path for name, path in files.items() if not name.startswith(OWN)}
    lines = {name: list(named(ast.parse(path.read_text()))) for name, path in outside.items()}
    return {name: list_ for name, list_ in lines.items() if list_}


def test_nothing_outside_their_packages_names_a_backend_or_a_method() -> None:
    assert {name: lines for name, lines in uses().items() if name not in NAMING} == {}


def test_every_reviewed_file_still_names_one() -> None:
    assert NAMING.keys() == uses().keys()


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
