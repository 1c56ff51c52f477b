"""Names on pages exist in the code: backends, methods, fields, reasons, metrics."""

import importlib
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from specdec.api import conditions
from specdec.api.matrix import support
from specdec.controller.settings import Settings
from support.documents import definition, load

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "charts").glob("*/README.md")),
    *sorted((ROOT / "manifests" / "samples").glob("*.yaml")),
]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
Names = tuple[str, ...]
# The endings of dotted names in backticks that are files, and not fields.
FILES = re.compile(
    r"\.(py|jsonl?|ya?ml|html|model|engine|crt|key|sum|toml|source|pbtxt|jinja|txt|md|so|pyz|svg|io|Z)$"
)
# Not our backends: backends of Triton, LLM and GPU, and starts of sentences before "backend".
BEFORE_BACKEND = {"Triton", "LLM", "GPU", "With", "Only"}
OTHERS = {
    "jobs.batch": "a resource of Kubernetes",
    "speculativemodels.specdec.dev": "our resource",
    "specdec.dev": "our group",
    "facts.findings": "in the facts of a model, which have no schema",
    "metrics.speculative_decoding": "in an answer of the OpenAI endpoint",
    "usage.completion_tokens_details": "in an answer of the OpenAI endpoint",
}


def below(node: Any, path: Names = ()) -> Iterator[Names]:
    """Yield the paths of all fields of a schema; the items of a list have the list's path."""
    yield path
    for name, child in node.get("properties", {}).items():
        yield from below(child, (*path, name))
    yield from below(node["items"], path) if "items" in node else ()


def keys(value: Any, path: Names = ()) -> Iterator[Names]:
    """Yield the paths of all values of a chart."""
    yield path
    for name, child in value.items() if isinstance(value, dict) else ():
        yield from keys(child, (*path, name))


@cache
def fields() -> frozenset[Names]:
    """Return every section of the path of a field or Helm value, because pages shorten paths."""
    schema = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    values = load((ROOT / "charts/specdec-operator/values.yaml").read_text("utf-8"))
    paths = [*below(schema), *keys(values)]
    return frozenset(
        path[first:last]
        for path in paths
        for first in range(len(path))
        for last in range(first + 2, len(path) + 1)
    )


def enum(*path: str) -> set[str]:
    node = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for part in ("spec", *path):
        node = node["properties"][part]
    return set(node["enum"])


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_backends_and_methods_are_those_of_the_api(page: Path) -> None:
    text = page.read_text("utf-8")
    paragraphs = re.split(r"\n\s*\n|\n\||\n#+ ", text)
    body = ". ".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    backends, methods = enum("runtime", "backend"), enum("speculation", "method")
    named = {
        *re.findall(r"\b[Bb]ackends? `?([A-Z]\w+)", body),
        *re.findall(r"\bbackends? \w+ and `?([A-Z]\w+)", body),
        *re.findall(r"(?m)(?:^ *|\{)backend: (\w+)(?:\}|,|$)", text),
        *re.findall(r"--backend (\w+)", body),
        *re.findall(r"\b([A-Z]\w+) backend\b", body),
    }
    assert named <= backends | BEFORE_BACKEND
    served = re.findall(r"\b(\w+) on (\w+), \d+ of \d+ pods", body)
    assert {method for method, _ in served} <= methods
    assert {backend for _, backend in served} <= backends
    assert set(re.findall(r"\bmethods?:? `([A-Z]\w+)`", body)) <= methods


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_dotted_names_are_fields(page: Path) -> None:
    body = page.read_text("utf-8")
    named = re.findall(r"`\.?([a-z]\w*(?:\.[a-zA-Z]\w*(?:\[\])?)+)(?:: [^`]*|=[^`]*)?`", body)
    wrong = [
        name
        for name in named
        if not FILES.search(name)
        and name not in OTHERS
        and not is_in_package(name)
        and tuple(name.replace("[]", "").split(".")) not in fields()
    ]
    assert wrong == []


def is_in_package(name: str) -> bool:
    """Return whether a dotted name is a module of our package or an attribute of a module."""
    module, _, attribute = name.rpartition(".")
    if not name.startswith("specdec."):
        return False
    spec = importlib.util.find_spec(module)
    inside = importlib.import_module(module) if spec else None
    return hasattr(inside, attribute) or importlib.util.find_spec(name) is not None


def test_the_other_dotted_names_are_used() -> None:
    pages = "".join(page.read_text("utf-8") for page in PAGES)
    assert [name for name in OTHERS if f"`{name}`" not in pages] == []


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_reasons_in_sentences_are_known(page: Path) -> None:
    body = " ".join(page.read_text("utf-8").split())
    lists = re.findall(r"\breasons? (`\w+`(?:,?(?: and| or)? `\w+`)*)", body)
    named = {word for listed in lists for word in re.findall(r"`(\w+)`", listed)}
    known = conditions.PROBLEMS | conditions.PROGRESS | {str(kind) for kind in conditions.Type}
    # `draft_error` is a label of a metric.
    assert named - {"draft_error"} <= known


@cache
def sources() -> str:
    folder = ROOT / "operator"
    files = [*folder.glob("specdec/**/*.py"), *folder.glob("bls/*/src/**/*.rs")]
    return "\n".join(file.read_text("utf-8") for file in files)


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_metrics_and_variables_are_those_of_the_code(page: Path) -> None:
    body = page.read_text("utf-8")
    metrics = set(re.findall(r"\b(?:specdec_|vllm:)[a-z]+(?:_[a-z]+)*\b", body))
    variables = set(re.findall(r"\bSPECDEC_[A-Z_]+\b", body))
    missing = [name for name in metrics | variables if not exists(name)]
    assert missing == []


def exists(name: str) -> bool:
    """Return whether the code has this metric or variable; settings have the prefix SPECDEC_."""
    setting = name.removeprefix("SPECDEC_").lower()
    return name in sources() or (name.isupper() and setting in Settings.model_fields)


@pytest.mark.parametrize("backend", sorted(enum("runtime", "backend")))
def test_default_images_are_in_the_section_of_their_backend(backend: str) -> None:
    page = (ROOT / "docs" / "support-matrix.md").read_text("utf-8")
    section = page.split(f"\n## {backend}\n", 1)[1].split("\n## ", 1)[0]
    shown = dict(re.findall(r"^\| ([\d.]+) \| `(nvcr\.io/\S+)` \|", section, re.MULTILINE))
    assert shown == support(backend).images


@pytest.mark.parametrize("target", ["bench", "campaign"])
def test_benchmarks_and_campaigns_on_pages_exist(target: str) -> None:
    folder = ROOT / "tests" / {"bench": "bench", "campaign": "campaigns"}[target]
    pages = "".join(page.read_text("utf-8") for page in PAGES)
    named = set(re.findall(rf"make {target} NAME=(\w+)", pages))
    assert named
    assert named <= {file.stem for file in folder.glob("*.py")}


def defaults(node: Any) -> Iterator[Any]:
    """Yield all defaults of a schema and of the schemas inside it."""
    yield from [node["default"]] if "default" in node else ()
    for child in (*node.get("properties", {}).values(), *filter(None, [node.get("items")])):
        yield from defaults(child)


def test_no_list_has_a_default_as_the_page_states() -> None:
    schema = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert "no list has a default" in (ROOT / "docs" / "gitops.md").read_text("utf-8")
    compound = [value for value in defaults(schema) if isinstance(value, dict | list)]
    # An empty block as a default gives the fields of the block their own defaults.
    assert set(map(str, compound)) == {"{}"}
