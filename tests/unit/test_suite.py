"""How the suite runs: which tests share a process, and which tests it leaves out."""

import ast
import functools
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from support import lanes, unchanged
from support.lanes import Lanes, lane

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
CODE = (TESTS, ROOT / "operator")
MARKED = re.compile(rf"{unchanged.MARK}\(\"(\w+)\"\)")


def test_a_lane_holds_whole_folders_and_any_other_file_is_its_own() -> None:
    assert lane("tests/e2e/test_scale.py::test_a") == lane("tests/cluster/test_node.py::test_b[c]")
    assert lane("tests/controlplane/test_top.py::test_a") != lane(
        "tests/chart/test_lua.py::test_a"
    )
    crd, watches, top = (
        lane(f"tests/controlplane/test_{name}.py::test_a") for name in ("crd", "watches", "top")
    )
    assert crd == watches != top == lane("tests/controlplane/test_rbac.py::test_b")
    assert lane("tests/unit/test_suite.py::test_a[x::y]") == "tests/unit/test_suite.py"


def test_every_lane_names_tests_that_exist() -> None:
    for place in (place for own in lanes.LANES for place in own):
        path = ROOT / place
        assert list(path.glob("test_*.py")) if place.endswith("/") else path.is_file(), place


def test_lanes_are_taken_before_files() -> None:
    names = ["tests/unit/test_a.py", *(own[0] for own in reversed(lanes.LANES))]
    work = lanes.Work((name, {}) for name in names)
    taken = [work.popitem(last=False)[0] for _ in names]
    assert taken == [*(own[0] for own in lanes.LANES), "tests/unit/test_a.py"]


class Worker:
    """A worker process of a test run, with the methods that the scheduler calls."""

    shutting_down = False

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.given: list[int] = []

    def send_runtest_some(self, tests: list[int]) -> None:
        self.given += tests

    def shutdown(self) -> None:
        self.shutting_down = True


def test_a_lane_goes_to_the_process_that_is_free_first() -> None:
    option = SimpleNamespace(loadscopereorder=True)
    config = SimpleNamespace(getvalue=lambda _: ["popen"] * 2, option=option)
    scheduler = Lanes(config)
    tests = [f"{own[0]}::test_{number}" for own in lanes.LANES[:3] for number in range(3)]
    slow, quick = Worker("slow"), Worker("quick")
    for worker in (slow, quick):
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, tests)
    scheduler.schedule()
    assert (slow.given, quick.given) == ([0, 1, 2], [3, 4, 5])
    scheduler.mark_test_complete(slow, 0)
    scheduler.mark_test_complete(quick, 3)
    assert (slow.given, quick.given) == ([0, 1, 2], [3, 4, 5])
    scheduler.mark_test_complete(quick, 4)
    assert (slow.given, quick.given) == ([0, 1, 2], [3, 4, 5, 6, 7, 8])


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tool" / "inner").mkdir(parents=True)
    (tmp_path / "tool" / "inner" / "a.py").write_text("a")
    return tmp_path


def test_a_digest_follows_names_and_content_alone(tree: Path) -> None:
    def now() -> str:
        return unchanged.digest(("tool",), tree)

    before, file = now(), tree / "tool" / "inner" / "a.py"
    (tree / "tool" / "__pycache__").mkdir()
    (tree / "tool" / "__pycache__" / "a.pyc").write_text("x")
    file.touch()
    assert now() == before
    file.write_text("b")
    changed = now()
    assert changed != before
    file.rename(file.with_name("b.py"))
    assert now() not in (before, changed)


def test_a_place_that_does_not_exist_is_an_error(tree: Path) -> None:
    with pytest.raises(FileNotFoundError, match="correct GROUPS"):
        unchanged.digest(("tool", "moved"), tree)


@pytest.mark.parametrize("group", unchanged.GROUPS)
def test_every_group_has_files(group: str) -> None:
    assert len(unchanged.digest(unchanged.GROUPS[group])) == 64


@functools.cache
def imported(file: Path) -> frozenset[Path]:
    """Return the files of tests/ and operator/ that a file imports, with their `__init__.py`."""
    names = set[str]()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    modules = [code.joinpath(*name.split(".")) for name in names for code in CODE]
    packages = {folder for module in modules for folder in (module, *module.parents)}
    files = [module.with_suffix(".py") for module in modules]
    files += [folder / "__init__.py" for folder in packages]
    return frozenset(file for file in files if file.is_file())


@pytest.mark.parametrize(
    ("file", "group"),
    [
        (str(file.relative_to(TESTS)), group)
        for file in sorted(TESTS.glob("*/test_*.py"))
        for group in sorted(set(MARKED.findall(file.read_text("utf-8"))))
        if group != "certify"
    ],
)
def test_a_group_names_what_its_tests_import(file: str, group: str) -> None:
    reached, waiting = set[Path](), {TESTS / file, (TESTS / file).with_name("conftest.py")}
    while waiting:
        path = waiting.pop()
        if path.is_file():
            reached.add(path)
            waiting |= imported(path) - reached
    places = [ROOT / place for place in unchanged.GROUPS[group]]
    outside = sorted(p for p in reached if not any(p.is_relative_to(place) for place in places))
    assert not outside, f"add these to the group {group} in {unchanged.__file__}: {outside}"


@pytest.mark.slow
def test_a_group_counts_as_passed_when_all_of_its_tests_have(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path))
    monkeypatch.setattr(unchanged.Unchanged, "_whole", staticmethod(lambda _: True))
    monkeypatch.setattr(pytestconfig.option, "skip_unchanged", True)

    def run(*passed: bool) -> None:
        plugin = unchanged.Unchanged(pytestconfig)
        for number, good in enumerate(passed):
            plugin.pytest_runtest_logreport(report(f"test_{number}", good))
        plugin.pytest_sessionfinish()

    for results in ((True, False), (True,), (True, True)):
        assert unchanged.Unchanged(pytestconfig).left_out == set()
        run(*results)
    assert unchanged.Unchanged(pytestconfig).left_out == {"cluster"}


def report(name: str, passed: bool) -> pytest.TestReport:
    """Return the report of a test in a group of two tests."""
    return pytest.TestReport(
        nodeid=name,
        location=("", None, name),
        keywords={},
        outcome="passed" if passed else "failed",
        longrepr=None,
        when="call",
        user_properties=[(unchanged.MARK, ("cluster", 2))],
    )
