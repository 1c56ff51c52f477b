"""Comparisons with the name of a backend, kind of server, method or Triton model.

Code that compares such a name knows something of it that belongs into its own package. The search
reads literals, constants of modules, members of enums and imported names, wherever a comparison, a
pattern or a table of cases has them.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from typing_extensions import override

from specdec import servers
from specdec.api.matrix import Backend, matrix
from specdec.api.speculation import Method
from specdec.triton import model_names

ROOT = Path(__file__).parents[2] / "operator" / "specdec"
# Values of other fields too; members of the enum still count.
_COMMON = {"None"}


@dataclass(frozen=True)
class Hit:
    """A comparison with a name."""

    path: str
    line: int
    name: str

    @override
    def __str__(self) -> str:
        return f"operator/specdec/{self.path}:{self.line} compares with {self.name}"


@cache
def names() -> Mapping[str, tuple[str, ...]]:
    """Return each name, and the places below the package that may compare with it."""
    places: dict[str, tuple[str, ...]] = {}
    for backend in Backend:
        places[backend.value] = (f"backends/{backend.value.lower()}/",)
    for row in matrix().values():
        places |= dict.fromkeys(row.fronts, ())
    for kind in servers.kinds():
        places[kind.name] = (f"servers/{kind.name}/",)
    for method in Method:
        module = method.name.lower()
        places[method.value] = (f"methods/{module}.py",)
    models = {name for name in vars(model_names).values() if isinstance(name, str)}
    for model in models & {
        model_names.__dict__[key] for key in vars(model_names) if key.isupper()
    }:
        owners = ("servers/bls/", "servers/llm_api/", "servers/vllm/")
        places[model] = ("triton/", *owners, "images/models/")
    return places


def hits(root: Path = ROOT) -> list[Hit]:
    """Return every comparison with a name outside its own package."""
    return [
        hit
        for path in sorted(root.rglob("*.py"))
        for hit in _of_file(path, str(path.relative_to(root)))
        if not any(place in hit.path for place in names()[hit.name])
    ]


def _of_file(path: Path, shown: str) -> Iterator[Hit]:
    tree = ast.parse(path.read_text("utf-8"))
    constants = dict(_constants(tree))
    for node in ast.walk(tree):
        for operand in _operands(node):
            for name in _named(operand, constants):
                yield Hit(shown, operand.lineno, name)


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the names in a module that stand for one of the names."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == model_names.__name__:
            for alias in node.names:
                yield alias.asname or alias.name, getattr(model_names, alias.name)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.Tuple):
            targets: list[ast.expr] = node.targets
            values: list[ast.expr] = [node.value]
            if isinstance(node.value, ast.Tuple) and isinstance(targets[0], ast.Tuple):
                targets, values = targets[0].elts, node.value.elts
            for target, value in zip(targets, values, strict=False):
                if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
                    yield target.id, str(value.value)


def _operands(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what a comparison, a pattern or a table of cases compares a value with."""
    if isinstance(node, ast.Compare):
        yield from (node.left, *node.comparators)
    elif isinstance(node, ast.MatchValue):
        yield node.value
    elif isinstance(node, ast.Dict):
        yield from (key for key in node.keys if key is not None)


def _named(node: ast.expr, constants: Mapping[str, str]) -> Iterator[str]:
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        for element in node.elts:
            yield from _named(element, constants)
    elif isinstance(node, ast.Constant) and node.value in names() and node.value not in _COMMON:
        yield str(node.value)
    elif isinstance(node, ast.Name) and constants.get(node.id) in names():
        yield constants[node.id]
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        enum = {"Method": Method, "Backend": Backend}.get(node.value.id)
        if enum is not None and node.attr in enum.__members__:
            yield enum[node.attr].value
