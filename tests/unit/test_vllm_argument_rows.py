"""The rows of vLLM's arguments, from the annotations in its sources."""

from pathlib import Path

import pytest
import yaml

from support import vllm_arguments
from support.vllm_arguments import Row, arguments, rows, written

SOURCE = """
from typing import TYPE_CHECKING, Any, Literal
from vllm.config import Cache, CacheType, Level, Loader
if TYPE_CHECKING:
    from torch import dtype as Dtype
Mode = Literal["fast", "safe"]
class EngineArgs:
    enabled: bool = True
    length: int | None = None
    share: float = 0.9
    number: int | float = 1
    names: list[str] | None = None
    cache: CacheType = "auto"
    mode: "Mode | None" = None
    ranks: Literal[8, 1] = 8
    options: dict[str, Any] = {}
    config: Cache = None
    level: Level = None
    name: str | Mode = ""
    either: str | list[str] = ""
    other: Dtype | str = ""
    loader: type[Loader] | None = None
    _private: int = 0
class AsyncEngineArgs(EngineArgs):
    logs: bool = False
"""
CONFIG = """
from enum import IntEnum
from typing import Literal
from vllm.cache_types import Cached as CacheType
class Cache: pass
class Level(IntEnum): pass
class Loader: pass
"""
TYPES = 'from typing import Literal\nSmall = Literal["fp8"]\nCached = Literal["auto", Small]\n'


def test_annotations_become_rows(tmp_path: Path) -> None:
    for name, text in (
        ("engine/arg_utils", SOURCE),
        ("config/__init__", CONFIG),
        ("cache_types", TYPES),
    ):
        path = tmp_path / "vllm" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    assert arguments(tmp_path) == {
        "enabled": {"type": "boolean"},
        "length": {"type": "integer", "optional": True},
        "share": {"type": "number"},
        "number": {"type": "number"},
        "names": {"type": "list", "optional": True},
        "cache": {"values": ["auto", "fp8"]},
        "mode": {"values": ["fast", "safe"], "optional": True},
        "ranks": {"type": "integer", "values": [1, 8]},
        "options": {"type": "object"},
        "config": {"type": "object"},
        "level": {"type": "integer"},
        "name": {"type": "text"},
        "either": {"type": "other"},
        "other": {"type": "text"},
        "loader": {"type": "other", "optional": True},
        "logs": {"type": "boolean"},
    }


A: Row = {"type": "text"}
B: Row = {"type": "integer"}


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ({"1": {"a": A}, "2": {"a": A}}, [{"since": "1", **A}]),
        ({"1": {}, "2": {"a": A}}, [{"since": "2", **A}]),
        ({"1": {"a": A}, "2": {}}, [{"since": "1", **A, "before": "2"}]),
        (
            {"1": {"a": A}, "2": {"a": B}},
            [{"since": "1", **A, "before": "2"}, {"since": "2", **B}],
        ),
        (
            {"1": {"a": A}, "2": {}, "3": {"a": A}},
            [{"since": "1", **A, "before": "2"}, {"since": "3", **A}],
        ),
    ],
)
def test_rows_have_the_versions_in_which_they_hold(
    tables: dict[str, dict[str, Row]], expected: list[Row]
) -> None:
    assert rows(tables) == {"a": expected}


TEXT = (
    "# head\nnames:\n  a: []\n  b: []\nfields:\n  c: d.e\nlimited:\n  b: [x]\nrefused:\n  f: no\n"
)


def test_file_keeps_its_lists_and_gets_new_rows() -> None:
    known = {name: [{"since": "1", "type": "text"}] for name in "abcf"}

    text = written(TEXT, known)

    table = yaml.safe_load(text)
    assert table["names"] == {"a": known["a"], "b": [{"since": "1", "values": ["x"]}]}
    assert text.startswith("# head\nnames:\n")
    assert text.endswith(TEXT[TEXT.index("fields:") :])


def test_argument_that_no_person_has_listed_is_reported() -> None:
    known = {name: [{"since": "1", "type": "text"}] for name in ("a", "worker_cls")}
    with pytest.raises(ValueError, match=r"refused of arguments\.yaml: worker_cls"):
        written(TEXT, known)


def test_file_passes_no_argument_of_an_unknown_type() -> None:
    table = yaml.safe_load(vllm_arguments.FILE.read_text("utf-8"))
    types = {row.get("type", "values") for rows in table["names"].values() for row in rows}
    assert types <= {"boolean", "integer", "number", "text", "list", "object", "values"}
    lists = [set(table[name]) for name in ("names", "fields", "refused")]
    assert sum(map(len, lists)) == len(set.union(*lists))
