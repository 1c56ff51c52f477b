"""Benchmark of a served model with and without speculation (extra `client`)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec.bench.measurement import Measurement, Progress, measure
    from specdec.bench.report import Arm, Interval, Latency, Level, Report
    from specdec.bench.settings import Settings

__all__ = [
    "Arm",
    "Interval",
    "Latency",
    "Level",
    "Measurement",
    "Progress",
    "Report",
    "Settings",
    "measure",
]
_HOMES = {
    **dict.fromkeys(("Arm", "Interval", "Latency", "Level", "Report"), "report"),
    **dict.fromkeys(("Measurement", "Progress", "measure"), "measurement"),
    "Settings": "settings",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
