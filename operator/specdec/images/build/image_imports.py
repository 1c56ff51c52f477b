"""Names that TensorRT-LLM would import in vain, read from syntax trees: nothing is imported.

So the check needs no GPU: without the libraries of a driver TensorRT-LLM cannot be imported.
It follows the imports inside TensorRT-LLM that a start always executes, and compares each imported
name with the source of its module. What no source shows is taken as present: compiled modules,
modules that define names while they run, imports under a condition or with a handler.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import image_packages
from image_names import imported_statements, names_of

_OWN = "tensorrt_llm"
_ALWAYS = frozenset({"__doc__", "__file__", "__name__", "__path__", "__spec__"})


class Site:
    """The modules in folders that Python searches.

    Args:
        search: the folders, in the order of the search.
        live: whether this process has the same packages as the programs that are checked. Only
            then a package that has no file is missing.
    """

    def __init__(self, search: Sequence[str], *, live: bool) -> None:
        self.search, self._live = tuple(search), live
        self._names: dict[Path, frozenset[str] | None] = {}

    def path(self, module: str) -> Path | None:
        """The file of a module, or its folder without `__init__.py`; None if it has none."""
        folders = [Path(folder) for folder in self.search]
        place: Path | None = None
        for part in module.split("."):
            place = next(filter(None, (_file(folder, part) for folder in folders)), None)
            spaces = [folder / part for folder in folders if (folder / part).is_dir()]
            place = place or next(iter(spaces), None)
            if place is None:
                return None
            folders = [place.parent] if place.name == "__init__.py" else spaces
        return place

    def missing(self, module: str) -> bool:
        """Whether Python surely cannot import a module."""
        if self.path(module) is not None:
            return False
        parent, _, _ = module.rpartition(".")
        if parent:
            place = self.path(parent)
            # A module that defines names while it runs may define modules too.
            return self.missing(parent) if place is None else self.names(place) is not None
        return self._live and not _specified(module)

    def names(self, place: Path) -> frozenset[str] | None:
        """The names that a module's source defines; None if the source does not show them all."""
        if place.name.endswith(".py") and place not in self._names:
            self._names[place] = None  # for modules that import each other with a star
            self._names[place] = self._defined(place)
        return self._names.get(place)

    def _defined(self, place: Path) -> frozenset[str] | None:
        tree = parsed(place)
        names = names_of(tree) if tree else None
        if names is None:
            return None
        own, stars = names
        for star in stars:
            module = absolute(star, self.module(place), is_package=place.name == "__init__.py")
            source = self.path(module)
            further = self.names(source) if source else None
            if further is None:
                return None
            own |= further
        return frozenset(own)

    def module(self, place: Path) -> str:
        """The full name of a module by its file."""
        for folder in self.search:
            if place.is_relative_to(folder):
                parts = place.relative_to(folder).with_suffix("").parts
                return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        return ""


def problems(starts: Mapping[str, str], site: Site) -> tuple[str, ...]:
    """A clause for each import that ends a start.

    Args:
        starts: by the name of a program or module for people, its script's path or its module.
        site: the packages.
    """
    return tuple(dict.fromkeys(_clauses(starts, site)))


def _clauses(starts: Mapping[str, str], site: Site) -> Iterator[str]:
    seen: set[Path] = set()
    for label, start in starts.items():
        if "/" not in start and site.missing(start):
            yield f"{label} cannot start: No module named '{start}'"
        waiting = [Path(start)] if "/" in start else list(_chain(start, site))
        while waiting:
            place = waiting.pop()
            if place in seen:
                continue
            seen.add(place)
            for statement in imported_statements(parsed(place)):
                for module, name in _targets(statement, place, site):
                    # A script may import modules beside it, wherever it searches for them.
                    if str(place) == start and not _is_own(module):
                        continue
                    error = _error(module, name, site)
                    if error:
                        yield f"{label} cannot start: {error}"
                    if _is_own(module):
                        waiting += _chain(module, site)
                        waiting += _chain(f"{module}.{name}", site) if name else ()


def _is_own(module: str) -> bool:
    return module.partition(".")[0] == _OWN


def _chain(module: str, site: Site) -> Iterator[Path]:
    """The sources of a module and the packages around it, which Python runs before it."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        place = site.path(".".join(parts[:count]))
        if place and place.suffix == ".py":
            yield place


def _targets(
    statement: ast.Import | ast.ImportFrom, place: Path, site: Site
) -> Iterator[tuple[str, str]]:
    """The modules of a statement, each with the name that is taken from it; empty for none."""
    if isinstance(statement, ast.Import):
        yield from ((alias.name, "") for alias in statement.names)
        return
    module = absolute(statement, site.module(place), is_package=place.name == "__init__.py")
    yield from ((module, "" if alias.name == "*" else alias.name) for alias in statement.names)


def _error(module: str, name: str, site: Site) -> str:
    """The message of Python's error for an import; empty if it can succeed.

    The standard library is complete, and parts of it define names in ways of their own.
    """
    if module.partition(".")[0] in sys.stdlib_module_names:
        return ""
    if site.missing(module):
        return f"No module named '{module}'"
    place = site.path(module)
    if not name or place is None or name in _ALWAYS:
        return ""
    names = site.names(place)
    if names is None or name in names or site.path(f"{module}.{name}"):
        return ""
    top = module.partition(".")[0]
    version = image_packages.installed(top, site.search)
    return f"cannot import name '{name}' from '{module}'" + (
        f" ({top} {version})" if version else ""
    )


def absolute(statement: ast.ImportFrom, importer: str, *, is_package: bool) -> str:
    """The full name of the module of a statement."""
    if not statement.level:
        return statement.module or ""
    parents = importer.split(".")
    kept = parents[: len(parents) - statement.level + (1 if is_package else 0)]
    return ".".join([*kept, *filter(None, [statement.module])])


def parsed(place: Path) -> ast.Module | None:
    """The syntax tree of a source; None if this Python cannot read it."""
    try:
        return ast.parse(place.read_text(encoding="utf-8", errors="replace"))
    except (SyntaxError, ValueError, OSError):
        return None


def _file(folder: Path, part: str) -> Path | None:
    """The file of a module in one folder: a package first, then compiled code, then a source."""
    package, source = folder / part / "__init__.py", folder / f"{part}.py"
    if package.is_file():
        return package
    compiled = next(iter(folder.glob(f"{part}.*so")), None) if folder.is_dir() else None
    return compiled or (source if source.is_file() else None)


def _specified(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return True
