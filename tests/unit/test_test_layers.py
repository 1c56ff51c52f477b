"""A layer of the tests imports only `support`, the programs and itself."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
FOLDERS = {path.name for path in TESTS.iterdir() if any(path.rglob("*.py"))}
# Folders with programs that people run; the layers test or use them.
PROGRAMS = {"bench", "campaigns", "cluster", "demo", "release"}
# A regular expression is a hundred times faster than `ast`. No import names several packages.
IMPORT = re.compile(r"^ *(?:from|import) (\w+)", re.M)
# (importing folder, imported folder): the reason why the import is allowed.
_OPERATOR = (
    "the operator as a process, with its audit log, is a handle of the control plane's tests"
)
EXCEPTIONS = {
    ("bench", "controlplane"): _OPERATOR,
    ("campaigns", "chart"): "`rights` installs the chart in each of its modes",
    ("campaigns", "controlplane"): _OPERATOR,
    ("campaigns", "e2e"): "three campaigns are long forms of tests on the real node",
    ("chart", "controlplane"): _OPERATOR,
    ("e2e", "chart"): "the real node gets the operator from the chart",
    ("e2e", "controlplane"): f"{_OPERATOR}; so is the endpoint picker",
    ("triton", "chart"): "a test asks a real server for each metric of the chart's dashboard",
    ("unit", "controlplane"): _OPERATOR,
}


def imported(path: Path) -> Iterator[str]:
    """Yield the folders of tests/ that a file imports from."""
    yield from set(IMPORT.findall(path.read_text("utf-8"))) & FOLDERS


@cache
def imports_across() -> dict[tuple[str, str], list[str]]:
    """Return the files with an import across layers, by importing and imported folder."""
    pairs: dict[tuple[str, str], list[str]] = {}
    for path in sorted(TESTS.rglob("*.py")):
        name = path.relative_to(TESTS)
        own = name.parts[0] if len(name.parts) > 1 else "support"
        for folder in imported(path):
            if folder not in (own, "support") and (own == "support" or folder not in PROGRAMS):
                pairs.setdefault((own, folder), []).append(str(name))
    # `support` may import only `cluster`, for its folders and processes.
    pairs.pop(("support", "cluster"), None)
    return pairs


def test_no_layer_imports_another() -> None:
    new = {pair: files for pair, files in imports_across().items() if pair not in EXCEPTIONS}
    assert not new, f"move what these share to tests/support: {new}"


def test_every_exception_is_still_needed() -> None:
    assert EXCEPTIONS.keys() <= imports_across().keys()
