"""Compare an image with what a release expects of it; pure, each difference is a clause.

What is expected comes as JSON from the operator (`specdec.backends.tensorrt.image`): version,
tensors and parameters of the models that will be published. The commands are those that a build
runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import image_flags
import image_packages
import image_template
from image_files import Image, Program
from image_template import Template, TemplateError, Tensor

# Differences that a message names; the others are counted.
NAMED = 3
ENGINE = "tensorrt_llm"
_PYTHON = "python3"
# The fix for an image whose packages are too old for its TensorRT-LLM.
_PACKAGES = (
    f"the operator's pods replace {image_packages.PACKAGE} in such an image; to check that, give "
    "--packages with /opt/specdec/packages of the operator's image, and elsewhere take "
    f"{image_packages.PACKAGE} {image_packages.FIRST} or newer"
)
Commands = Iterable[Sequence[str]]


@dataclass(frozen=True)
class ImageReport:
    """The result of a check.

    Attributes:
        version: of the installed TensorRT-LLM; empty where none is installed.
        templates: how many templates were compared.
        flags: how many flags were compared; a flag of two programs counts twice.
        fields: the names of request fields in the image, by the name of the field here.
        differences: a clause each, the most important ones first.
        outdated: whether TensorRT-LLM needs a newer package than the image has.
    """

    version: str
    templates: int
    flags: int
    fields: Mapping[str, str]
    differences: tuple[str, ...]
    outdated: bool = False

    def shown(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "version": self.version,
            "templates": self.templates,
            "flags": self.flags,
            "requestFields": dict(self.fields),
            "differences": list(self.differences),
        }


def check(
    expected: Mapping[str, Any],
    image: Image,
    commands: Commands,
    mode: str = "",
    missing: Iterable[str] = (),
) -> ImageReport:
    """Compare an image with the expectations of a release.

    Args:
        expected: the operator's JSON.
        image: what was read of the image.
        commands: argument vectors of a build.
        mode: speculative decoding mode of the engine. The mode's parameters are needed too; empty
            needs those of all modes.
        missing: a clause for each script that the image lacks.
    """
    templates, unreadable = _templates(image)
    spellings = [_spelling(expected, model, t) for model, t in templates.items()]
    fields = _spelling(expected, ENGINE, templates[ENGINE]) if ENGINE in templates else {}
    passed = [(program(command), _arguments(command)) for command in commands]
    differences = [
        *_version(expected, image),
        *image.imports,
        *_missing(expected, image),
        *unreadable,
        *(d for m, t in templates.items() for d in _model(expected, m, t, mode)),
        *_mixed(expected, fields, spellings),
        *missing,
        *(d for name, arguments in passed for d in _flags(image, name, arguments)),
    ]
    return ImageReport(
        version=image.version,
        templates=len(templates),
        flags=len({(p, a.partition("=")[0]) for p, arguments in passed for a in arguments}),
        fields=fields,
        differences=tuple(dict.fromkeys(differences)),
        outdated=image.outdated,
    )


def program(command: Sequence[str]) -> str:
    """The program of a command; for a Python script, the script."""
    return command[1] if command[0] == _PYTHON else command[0]


def _arguments(command: Sequence[str]) -> tuple[str, ...]:
    return tuple(command[2 if command[0] == _PYTHON else 1 :])


def sentence(report: ImageReport, expected: Mapping[str, Any]) -> str:
    """The differences as one sentence with the fix; empty where there are none."""
    if not report.differences:
        return ""
    named = "; ".join(report.differences[:NAMED])
    more = len(report.differences) - NAMED
    rest = f"; and {more} more, which `specdec image check` lists" if more > 0 else ""
    return (
        f"the image differs from TensorRT-LLM {expected['version']}: {named}{rest}: "
        f"{_fix(report, expected)}"
    )


def _fix(report: ImageReport, expected: Mapping[str, Any]) -> str:
    if report.outdated and not any(_version(expected, report)):
        return _PACKAGES
    image = f"set spec.runtime.image to an image of {expected['version']}"
    if expected["image"]:
        image += f" such as {expected['image']}"
    if report.version != expected["version"] and report.version in expected["served"]:
        return f"set spec.runtime.version to {report.version}, or {image[4:]}"
    return image


def _version(expected: Mapping[str, Any], image: Image | ImageReport) -> Iterator[str]:
    # A local part, as in 1.2.1+cu13, names a build of the same release.
    actual = image.version.partition("+")[0]
    if not image.version:
        yield "no TensorRT-LLM is installed"
    elif actual != expected["version"]:
        yield f"TensorRT-LLM {image.version} is installed"


def _missing(expected: Mapping[str, Any], image: Image) -> Iterator[str]:
    if not expected["models"]:
        return
    if not image.folder:
        yield f"it has no templates in {' or '.join(expected['templates'])}"
        return
    for model in expected["models"]:
        if model not in image.templates:
            yield f"{image.folder} has no {model}/config.pbtxt"


def _templates(image: Image) -> tuple[dict[str, Template], list[str]]:
    """The templates by model, and a clause for each that cannot be read."""
    templates, problems = {}, []
    for model, text in image.templates.items():
        try:
            templates[model] = image_template.read(text)
        except TemplateError as error:
            problems.append(f"{model}/config.pbtxt cannot be read ({error})")
    return templates, problems


def _model(
    expected: Mapping[str, Any], model: str, template: Template, mode: str
) -> Iterator[str]:
    """How a template differs from what is published under its name."""
    own = expected["models"][model]
    for side, rows, declared in (
        ("input", own["inputs"], template.inputs),
        ("output", own["outputs"], template.outputs),
    ):
        by_name = {tensor.name: tensor for tensor in declared}
        for row in rows:
            yield from _tensor(f"{side} {{}} of {model}", row, by_name)
    known = {name for row in own["inputs"] for name in row["names"]}
    for tensor in template.inputs:
        if not tensor.optional and tensor.name not in known:
            yield f"input {tensor.name} of {model} is mandatory in the image and not in specdec"
    for key in template.keys:
        if key not in own["known"]:
            yield f"parameter {key} of {model} is unknown to specdec"
    modes = own["modes"]
    chosen = [mode] if mode else list(modes)
    for key in (*own["needed"], *(key for name in chosen for key in modes.get(name, []))):
        if key not in template.keys:
            yield f"parameter {key} of {model} is set by specdec and missing in the image"


def _tensor(label: str, row: Mapping[str, Any], declared: Mapping[str, Tensor]) -> Iterator[str]:
    """How one tensor differs; if it has several names, the template uses one of them."""
    actual = next((declared[name] for name in row["names"] if name in declared), None)
    if actual is None:
        yield f"{label.format(' or '.join(row['names']))} is missing in the image"
    elif actual.data_type != row["type"] and not actual.data_type.startswith("${"):
        tensor = label.format(actual.name)
        yield f"{tensor} is {actual.data_type} in the image and {row['type']} in specdec"


def _spelling(expected: Mapping[str, Any], model: str, template: Template) -> dict[str, str]:
    """For each request field with two names, the one that a model's template uses."""
    declared = {tensor.name for tensor in template.inputs}
    fields: Mapping[str, Sequence[str]] = expected["requestFields"]
    return {
        field: name
        for field, names in fields.items()
        if model in expected["models"]
        for name in names
        if name in declared
    }


def _mixed(
    expected: Mapping[str, Any], fields: Mapping[str, str], spellings: Iterable[Mapping[str, str]]
) -> Iterator[str]:
    """Clauses for templates that mix names of releases: a repository has the names of one."""
    names: Mapping[str, Sequence[str]] = expected["requestFields"]
    if len({names[field].index(name) for field, name in fields.items()}) > 1:
        yield f"{ENGINE} has {' beside '.join(fields.values())}, names of different releases"
    for spelling in spellings:
        for field, name in spelling.items():
            if field in fields and fields[field] != name:
                yield f"one template has {name} where {ENGINE} has {fields[field]}"


def _flags(image: Image, name: str, arguments: Iterable[str]) -> Iterator[str]:
    read = image.programs.get(name, Program(name, problem=f"{name} was not read"))
    if read.problem:
        yield read.problem
        return
    for problem in image_flags.problems(read.definitions, arguments):
        yield f"{read.name} {problem}"
