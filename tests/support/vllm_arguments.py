"""The names of `backends/vllm/arguments.yaml`, from the sources of installed versions of vLLM.

`python -m support.vllm_arguments` writes the rows of the table `names`. It reads the annotations
of `AsyncEngineArgs` without an import, which would take seconds. Names are listed by hand, in
`names` with an empty row or in `fields` or `refused`, so no new argument of vLLM is passed on
before a person has judged it.
"""

import ast
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from support import vllm_wheel

FILE = Path(__file__).parents[2] / "operator" / "specdec" / "backends" / "vllm" / "arguments.yaml"
_PLAIN = {"bool": "boolean", "int": "integer", "float": "number", "str": "text"}
_LISTS = ("list", "set", "tuple")
# Of several types without a common one, none is a value that JSON can state.
OTHER = "other"
Row = dict[str, Any]


class Source:
    """A module of a package whose modules are files below a folder."""

    def __init__(self, root: Path, module: str) -> None:
        """Read the module `module`, as "vllm.config.model", from the folder that has `vllm`."""
        self._root = root
        path = root.joinpath(*module.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        self.body = list(_statements(ast.parse(file.read_text("utf-8")).body))

    def find(self, name: str) -> "tuple[Source, ast.stmt] | None":
        """Return a definition by name, with the module that has it; follows imports."""
        for statement in self.body:
            if isinstance(statement, ast.ImportFrom) and statement.module:
                for alias in statement.names:
                    if (alias.asname or alias.name) == name:
                        return _module(self._root, statement.module, alias.name)
            elif name in _defined(statement):
                return self, statement
        return None


@cache
def _source(root: Path, module: str) -> Source:
    return Source(root, module)


def _module(root: Path, module: str, name: str) -> tuple[Source, ast.stmt] | None:
    path = root.joinpath(*module.split("."))
    known = module.startswith("vllm") and (path.is_dir() or path.with_suffix(".py").is_file())
    return _source(root, module).find(name) if known else None


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, those below `if TYPE_CHECKING` first."""
    for statement in body:
        if isinstance(statement, ast.If):
            yield from _statements(statement.body)
    yield from (each for each in body if not isinstance(each, ast.If))


def _defined(statement: ast.stmt) -> tuple[str, ...]:
    if isinstance(statement, ast.ClassDef):
        return (statement.name,)
    if isinstance(statement, ast.Assign):
        return tuple(each.id for each in statement.targets if isinstance(each, ast.Name))
    if isinstance(statement, ast.AnnAssign):
        target = statement.target
        return (target.id,) if isinstance(target, ast.Name) else ()
    return ()


def arguments(site_packages: Path) -> dict[str, Row]:
    """Return the row of each argument of `AsyncEngineArgs` by name, without private ones."""
    source = Source(site_packages, "vllm.engine.arg_utils")
    rows: dict[str, Row] = {}
    for name in ("EngineArgs", "AsyncEngineArgs"):
        defined = source.find(name)
        assert defined, name
        assert isinstance(defined[1], ast.ClassDef), name
        for statement in defined[1].body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                rows[statement.target.id] = _row(source, statement.annotation)
    return {name: row for name, row in rows.items() if not name.startswith("_")}


def _row(source: Source, annotation: ast.expr) -> Row:
    options = list(_options(source, annotation))
    row: Row = {"optional": True} if None in options else {}
    values = [each for each in options if isinstance(each, tuple)]
    kinds = {each for each in options if isinstance(each, str)}
    if not kinds and values:
        allowed = [value for each in values for value in each if value is not None]
        if all(isinstance(value, str) for value in allowed):
            return {"values": sorted(dict.fromkeys(allowed)), **row}
        return {"type": "integer", "values": sorted(allowed), **row}
    if values:
        kinds.add("text")
    # A number may be whole; a class beside a text or an object is for programs alone.
    if kinds == {"integer", "number"}:
        kinds = {"number"}
    plain = kinds - {OTHER}
    return {"type": plain.pop() if len(plain) == 1 else OTHER, **row}


def _options(source: Source, node: ast.expr) -> Iterator[str | tuple[Any, ...] | None]:
    """Yield the types of an annotation: a type's name, a tuple of values, or None."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield from _options(source, ast.parse(node.value, mode="eval").body)
        else:
            yield None
    elif isinstance(node, ast.BinOp):
        yield from _options(source, node.left)
        yield from _options(source, node.right)
    elif isinstance(node, ast.Subscript):
        yield from _subscript(source, node)
    elif isinstance(node, ast.Name):
        yield from _named(source, node.id)
    else:
        yield OTHER


def _subscript(source: Source, node: ast.Subscript) -> Iterator[str | tuple[Any, ...] | None]:
    name = node.value.id if isinstance(node.value, ast.Name) else ""
    inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name == "Literal":
        for each in inner:
            # A literal may name another one.
            nested = _options(source, each) if isinstance(each, ast.Name) else ()
            yield from nested or [(ast.literal_eval(each),)]
    elif name in ("Union", "Optional"):
        for each in inner:
            yield from _options(source, each)
        if name == "Optional":
            yield None
    elif name == "Annotated":
        yield from _options(source, inner[0])
    else:
        yield from _named(source, name)


def _named(source: Source, name: str) -> Iterator[str | tuple[Any, ...] | None]:
    if name in _PLAIN:
        yield _PLAIN[name]
    elif name in _LISTS:
        yield "list"
    elif name == "dict":
        yield "object"
    elif defined := source.find(name):
        module, statement = defined
        if isinstance(statement, ast.ClassDef):
            yield _class(statement)
        elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value:
            yield from _options(module, statement.value)
    else:
        yield OTHER


def _class(statement: ast.ClassDef) -> str:
    bases = [ast.unparse(base) for base in statement.bases]
    if any("IntEnum" in base for base in bases):
        return "integer"
    return "text" if any("Enum" in base for base in bases) else "object"


def rows(tables: Mapping[str, Mapping[str, Row]]) -> dict[str, list[Row]]:
    """Return the rows of each name: one for each span of versions in which its row is the same.

    Args:
        tables: of each version, oldest first.
    """
    versions, spans = list(tables), dict[str, list[Row]]()
    for index, version in enumerate(versions):
        for name, row in tables[version].items():
            known = spans.setdefault(name, [])
            last = known[-1] if known else None
            if last is not None and "before" not in last and _shape(last) == row:
                continue
            if last is not None:
                last.setdefault("before", version)
            known.append({"since": version, **row})
        for name in spans.keys() - tables[version].keys():
            spans[name][-1].setdefault("before", versions[index])
    return dict(sorted(spans.items()))


def _shape(row: Row) -> Row:
    return {key: value for key, value in row.items() if key not in ("since", "before")}


def generated() -> dict[str, list[Row]]:
    """Return the rows of all names that installed versions have."""
    tables = {}
    for version in sorted(vllm_wheel.VERSIONS, key=lambda text: [int(n) for n in text.split(".")]):
        installation = vllm_wheel.available(version)
        assert installation, f"run `make vllm VLLM={version}`"
        tables[version] = arguments(installation.site_packages)
    return rows(tables)


def written(text: str, known: Mapping[str, list[Row]]) -> str:
    """Return the text of the file with new rows for the names that it lists.

    Raises:
        ValueError: an argument is in none of the lists.
    """
    table = yaml.safe_load(text)
    listed = {*table["names"], *table["fields"], *table["refused"]}
    if new := sorted(known.keys() - listed):
        raise ValueError(f"add to names, fields or refused of arguments.yaml: {', '.join(new)}")
    lines = ["names:"]
    for name in sorted(table["names"].keys() & known.keys()):
        each = known[name]
        if values := table["limited"].get(name):
            each = [{"since": each[0]["since"], "values": values}]
        lines.append(f"  {name}:")
        for row in each:
            lines += _lines(row)
    head, _, rest = text.partition("\nnames:\n")
    return "\n".join([head, *lines, "fields:", rest.partition("\nfields:\n")[2]])


def _lines(row: Row) -> list[str]:
    """Return the lines of a row in flow style, of 100 characters at most."""
    text = yaml.safe_dump(row, default_flow_style=True, sort_keys=False, width=10**6).strip()
    return textwrap.wrap(text, 100, initial_indent="    - ", subsequent_indent="      ")


def main() -> None:
    """Write the file."""
    FILE.write_text(written(FILE.read_text("utf-8"), generated()), "utf-8")


if __name__ == "__main__":
    main()
