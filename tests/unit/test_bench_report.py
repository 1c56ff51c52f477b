"""The report of benchmarks: figures, goals, and times against the speed of the machine."""

import json

import pytest

from support import bench_report
from support.bench_report import Report


@pytest.mark.parametrize("unit", ["us", "ms", "s", "ms/MB", "rounds/s", "tokens/s"])
def test_time_has_no_goal(unit: str) -> None:
    with pytest.raises(ValueError, match=f"^b.x has a goal in {unit}: compare it with a time of"):
        Report().figure("b.x", [1.0], unit, goal=2.0)


def test_time_is_judged_by_the_speed_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report()
    for unit in (0.005, 0.01):
        monkeypatch.setattr(bench_report, "additions_seconds", lambda unit=unit: unit)
        report.against_machine("b.x", [0.002, 0.003, 0.004], goal=0.4)
    quick, slow = map(json.loads, capsys.readouterr().out.splitlines())
    assert (quick["name"], quick["value"], quick["met"]) == ("b.x_of_additions", 0.6, False)
    assert (slow["value"], slow["met"]) == (0.3, True)
    assert report.exit_status() == 1


def test_additions_take_time() -> None:
    assert bench_report.additions_seconds() > 0
