"""Benchmark a served model with and without speculation (extra `client`).

`specdec bench` and the in-cluster benchmark Job call `measure`. An arm is one draft length; the
baseline is the arm without speculation. A level is one number of concurrent clients.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec.client.load.measurement import Measurement, Progress, measure
    from specdec.client.load.report import Arm, Interval, Latency, Level, Report
    from specdec.client.load.settings import Settings

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
_MODULES = {
    **dict.fromkeys(("Arm", "Interval", "Latency", "Level", "Report"), "report"),
    **dict.fromkeys(("Measurement", "Progress", "measure"), "measurement"),
    "Settings": "settings",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
