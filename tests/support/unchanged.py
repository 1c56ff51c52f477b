"""`--skip-unchanged`: leaves out groups of tests whose files have not changed since they passed.

For each group, the cache folder keeps a digest of its files from the last whole run in which all
tests of the group passed. A digest depends on the files alone, not on commits.
"""

import hashlib
from collections import Counter
from pathlib import Path
from typing import cast

import pytest

from cluster import folders

_SETTINGS = ("constraints.txt", "pyproject.toml", "tests/conftest.py")
_LAYERS = tuple(f"tests/{name}" for name in ("campaigns", "cluster", "support"))
_BLS = (
    "operator/specdec/__init__.py",
    "operator/specdec/triton/__init__.py",
    "operator/specdec/triton/library_digest.py",
    "tests/support/__init__.py",
    "tests/support/bls.py",
)
# Code that runs in a server, its clients, and code that writes its repository.
_SERVER = (
    "operator/bls",
    "operator/specdec/__init__.py",
    *(
        f"operator/specdec/{name}"
        for name in ("api", "backends", "client", "desired", "jobs", "payload", "triton")
    ),
)
# The files that determine the result of a group's tests.
GROUPS: dict[str, tuple[str, ...]] = {
    "cluster": (*_SETTINGS, "tests/cluster", *_BLS),
    "product": (
        *_SETTINGS,
        *_LAYERS,
        "Dockerfile",
        "charts",
        "crds",
        "manifests",
        "operator",
        "tests/chart",
        "tests/controlplane",
        "tests/demo",
        "tests/e2e",
    ),
    # Servers of a repository and short campaigns with them; not the controller of their pods.
    "servers": (
        *_SETTINGS,
        *_LAYERS,
        *_SERVER,
        "tests/bench/baseline",
        "tests/triton",
        "tests/unit/triton/contract",
    ),
    # The resources that the API server accepts; not the controller that reconciles them.
    "definition": (
        *_SETTINGS,
        "README.md",
        "charts",
        "crds",
        "docs/api.md",
        "docs/start-gpu.md",
        "manifests",
        "operator/specdec/__init__.py",
        "operator/specdec/api",
        "operator/specdec/dry_run",
        "operator/specdec/triton",
        "tests/cluster",
        "tests/controlplane",
        "tests/support",
    ),
    # The other tests of certify always run, on the same node.
    "certify": (
        "docs/certify.md",
        "operator/specdec/certify",
        "operator/specdec/cli/certify.py",
        "operator/specdec/bench",
        "tests/e2e/test_certify.py",
    ),
}
OPTION = "--skip-unchanged"
MARK = "when_changed"
_ROOT = Path(__file__).parents[2]


def digest(places: tuple[str, ...], root: Path = _ROOT) -> str:
    """Return the sha256 (hex) of names and content of the files below `places`.

    Raises:
        FileNotFoundError: one of the places does not exist.
    """
    total = hashlib.sha256()
    for place in places:
        if not (root / place).exists():
            raise FileNotFoundError(f"{place} does not exist: correct GROUPS in {__file__}")
        for path in sorted((root / place, *(root / place).rglob("*"))):
            if path.is_file() and not _made(path):
                total.update(f"{path.relative_to(root)} {path.stat().st_size}\n".encode())
                total.update(path.read_bytes())
    return total.hexdigest()


def _made(path: Path) -> bool:
    """Return whether a file is built from sources, which the digest covers instead."""
    made = {"__pycache__", "target"} & set(path.parts)
    return bool(made) or path.name.startswith("libtriton_specdec.")


class Unchanged:
    """A pytest plugin that leaves out unchanged groups, and records groups that passed."""

    def __init__(self, config: pytest.Config) -> None:
        skip = config.getoption(OPTION)
        self._records = self._whole(config)
        used = GROUPS if skip or self._records else {}
        self._digests = {name: digest(places) for name, places in used.items()}
        self.left_out = {name for name in used if skip and self._recorded(name)}
        self._passed: Counter[str] = Counter()
        self._totals: Counter[str] = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        groups = {item: mark.args[0] for item in items for mark in item.iter_markers(MARK)}
        totals = Counter(groups.values())
        for item, group in groups.items():
            item.user_properties.append((MARK, (group, totals[group])))
        out = [item for item, group in groups.items() if group in self.left_out]
        if out:
            config.hook.pytest_deselected(items=out)
            items[:] = [item for item in items if item not in out]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        values = [value for name, value in report.user_properties if name == MARK]
        if values and report.when == "call":
            (group, total), *_ = cast("list[tuple[str, int]]", values)
            self._totals[group] = total
            self._passed[group] += report.passed

    def pytest_sessionfinish(self) -> None:
        for group, total in self._totals.items():
            if self._records and self._passed[group] == total:
                self._file(group).parent.mkdir(parents=True, exist_ok=True)
                folders.write(self._file(group), self._digests[group])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.left_out:
            names = ", ".join(sorted(self.left_out))
            terminalreporter.write_line(
                f"not run, because unchanged since they passed: {names} (`make nightly` runs all)"
            )

    def _recorded(self, group: str) -> bool:
        file = self._file(group)
        return file.is_file() and file.read_text() == self._digests[group]

    @staticmethod
    def _whole(config: pytest.Config) -> bool:
        """Return whether this process gets the results of a run of all tests."""
        # A worker of pytest-xdist reports to the process that started it.
        worker = hasattr(config, "workerinput")
        return not worker and config.args_source is pytest.Config.ArgsSource.TESTPATHS

    @staticmethod
    def _file(group: str) -> Path:
        return folders.cache() / "passed" / group
