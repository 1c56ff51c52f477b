"""Read what an image check compares from an image's files; nothing of the image is imported."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import Distribution, DistributionFinder, MetadataPathFinder
from pathlib import Path

import image_flags
import image_imports
import image_packages
from image_flags import Definitions, Helper
from image_imports import Site

_PACKAGE = "tensorrt_llm"
# Where images keep Python packages, below their root.
_PACKAGES = (
    "opt/*/lib/python3*/site-packages",
    "usr/local/lib/python3*/dist-packages",
    "usr/local/lib/python3*/site-packages",
    "usr/lib/python3*/dist-packages",
)
# The number of imports that are followed, one to the next, to find the definition of a function.
_HOPS = 4


@dataclass(frozen=True)
class Program:
    """A program of the image: its flags, or why they cannot be read."""

    name: str
    definitions: Definitions = field(default_factory=Definitions)
    problem: str = ""


@dataclass(frozen=True)
class Image:
    """What was read of an image.

    Attributes:
        version: of the installed TensorRT-LLM; empty where none is installed.
        folder: of the templates; empty where the image has none.
        templates: text of each model's `config.pbtxt`.
        programs: those of the builds, by the path or name in the first argument of a command.
        imports: a clause for each import that would end a program or a server at its start.
        outdated: whether TensorRT-LLM needs a newer package than the image has.
    """

    version: str
    folder: str
    templates: Mapping[str, str]
    programs: Mapping[str, Program]
    imports: tuple[str, ...] = ()
    outdated: bool = False


def gather(
    root: Path,
    folders: Iterable[str],
    models: Iterable[str],
    programs: Iterable[str],
    modules: Iterable[str] = (),
    packages: str = "",
) -> Image:
    """Read an image.

    Args:
        root: the image's file system; `/` inside a container of the image.
        folders: places of templates, absolute in the image; the first that exists counts.
        models: those with a template.
        programs: paths of scripts as this process sees them, and names of console scripts.
        modules: those that a server imports.
        packages: a folder that pods search first if the image needs it; empty for none.
    """
    package = _installed(root)
    live, search = root == Path("/"), _search(root)
    if packages and image_packages.needed(search):
        search = [packages, *search]
    starts = dict(_starts(programs := list(programs), package)) | {m: m for m in modules}
    folder = next((f for f in folders if below(root, f).is_dir()), "")
    paths = {model: below(root, folder) / model / "config.pbtxt" for model in models}
    templates = {m: _text(path) for m, path in paths.items() if folder and path.is_file()}
    return Image(
        version=package.version if package else "",
        folder=folder,
        templates=templates,
        programs={program: _program(program, package) for program in programs},
        imports=image_imports.problems(starts, Site(search, live=live)) if package else (),
        outdated=image_packages.needed(search),
    )


def _starts(programs: Iterable[str], package: Distribution | None) -> Iterator[tuple[str, str]]:
    """By the name of a program for people, its script's path or the module of its script."""
    for program in programs:
        path = Path(program)
        if "/" in program:
            yield f"{path.parent.name}/{path.name}", program
        elif package:
            scripts = package.entry_points.select(group="console_scripts", name=program)
            yield from ((program, script.module) for script in scripts)


def _search(root: Path) -> list[str]:
    """The folders with the packages of an image."""
    return sys.path if root == Path("/") else [*map(str, _packages(root))]


def below(root: Path, path: str) -> Path:
    """A path of the image, seen from outside."""
    return root / path.lstrip("/")


def _installed(root: Path) -> Distribution | None:
    """The installed TensorRT-LLM, from its metadata."""
    context = DistributionFinder.Context(name=_PACKAGE, path=_search(root))
    return next(iter(MetadataPathFinder.find_distributions(context)), None)


def _packages(root: Path) -> Iterator[Path]:
    for pattern in _PACKAGES:
        yield from sorted(root.glob(pattern), reverse=True)


def _program(name: str, package: Distribution | None) -> Program:
    """The flags of a script, or of a console script of the package."""
    if "/" in name:
        path = Path(name)
        return _read(f"{path.parent.name}/{path.name}", path, package)
    scripts = package.entry_points.select(group="console_scripts", name=name) if package else ()
    places = (_module(package, script.module) for script in scripts if package)
    place = next(filter(None, places), None)
    if place is None:
        return Program(name, problem=f"the image has no {name}")
    return _read(name, place, package)


def _read(name: str, path: Path, package: Distribution | None) -> Program:
    try:
        source = _text(path)
        definitions = image_flags.defined(source)
        for helper in image_flags.helpers(source):
            definitions |= _helper(helper, package)
    except FileNotFoundError:
        return Program(name, problem=f"the image has no {name}")
    except SyntaxError as error:
        return Program(name, problem=f"{name} is no Python (line {error.lineno})")
    return Program(name, definitions)


def _helper(helper: Helper, package: Distribution | None) -> Definitions:
    """The flags that a function adds, wherever the package defines it."""
    module = helper.module
    for _ in range(_HOPS):
        path = _module(package, module) if package else None
        if path is None:
            break
        source = _text(path)
        further = image_flags.reexport(source, helper.function)
        if further is None:
            return image_flags.defined(source, helper.function)
        helper, module = further, _absolute(further, module, path.name == "__init__.py")
    return Definitions(complete=False)


def _absolute(helper: Helper, importer: str, is_package: bool) -> str:
    """The full name of a module that another one imports from."""
    if not helper.level:
        return helper.module
    parents = importer.split(".")
    kept = parents[: len(parents) - helper.level + (1 if is_package else 0)]
    return ".".join([*kept, *filter(None, [helper.module])])


def _module(package: Distribution, name: str) -> Path | None:
    """The file of a module that is installed beside the metadata."""
    place = Path(str(package.locate_file(name.replace(".", "/"))))
    candidates = (place.with_name(f"{place.name}.py"), place / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
