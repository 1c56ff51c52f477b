"""Print every resource of a namespace or of the cluster, for `specdec status` without a name.

It only formats; all text from the cluster is escaped. `tree` shares its functions for states.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from specdec.api.conditions import PROBLEMS
from specdec.tools.terminal import ago, fits, grid, items, plain, row

Json = dict[str, Any]
# States of an engine that needs no build.
DONE = frozenset({"Built", "Prebuilt"})


def show_all(console: Console, resources: Sequence[Json], now: datetime) -> None:
    """Print summaries as a table with one line per resource, or as a list if it is too wide."""
    heads = ("namespace", "name", "method", "ready", "reason", "progress", "accept", "speed")
    table = grid(*(head.upper() for head in (*heads, "age")), whole={"NAME", "NAMESPACE"})
    for resource in resources:
        ready = condition_of(resource, "Ready")
        speculation = resource.get("speculation", {})
        row(
            table,
            resource["namespace"],
            resource["name"],
            resource["method"],
            f"{resource.get('readyReplicas', 0)}/{resource['desiredReplicas']}",
            Text(plain(ready.get("reason", "not reconciled")), color(ready)),
            _build_progress(resource),
            _percent(speculation.get("acceptancePercent")),
            multiple(speculation.get("speedupPercent")),
            since(resource["createdAt"], now),
        )
    if fits(table, console.width):
        console.print(table)
    else:
        console.print(items(_item(resource, now) for resource in resources))


def _item(resource: Json, now: datetime) -> tuple[Text, str, str]:
    """A resource in a list: its name and state, its figures, and no message."""
    ready, speculation = condition_of(resource, "Ready"), resource.get("speculation", {})
    name = Text(plain(f"{resource['namespace']}/{resource['name']}"))
    name.append(plain(f"  {ready.get('reason', 'not reconciled')}"), color(ready))
    details = (
        resource["method"],
        f"{resource.get('readyReplicas', 0)}/{resource['desiredReplicas']} ready",
        _build_progress(resource),
        f"accept {_percent(speculation.get('acceptancePercent'))}",
        f"speed {multiple(speculation.get('speedupPercent'))}",
        since(resource["createdAt"], now),
    )
    return name, "  ".join(filter(None, details)), ""


def _build_progress(resource: Json) -> str:
    """The progress of running engine builds."""
    builds = (
        f"{engine['role']} {engine['percent']} %"
        for engine in resource.get("engines", ())
        if engine.get("state") not in DONE and "percent" in engine
    )
    return ", ".join(builds)


def condition_of(resource: Json, kind: str) -> Json:
    """A condition of a resource by its type; empty if it has none."""
    conditions: list[Json] = resource.get("conditions", [])
    return next((item for item in conditions if item["type"] == kind), {})


def color(condition: Json) -> str:
    """The color of a condition: red for problems, yellow for progress."""
    if condition.get("status") == "True":
        return "green"
    return "red" if condition.get("reason") in PROBLEMS else "yellow"


def _percent(value: int | None) -> str:
    return "-" if value is None else f"{value}%"


def multiple(percent: int | None) -> str:
    """A speed in percent of the target alone, as a multiple of it."""
    return "-" if percent is None else f"{percent / 100:.2f}x"


def since(timestamp: str, now: datetime) -> str:
    """The age of a timestamp of the API; `?` where there is none."""
    try:
        return ago((now - datetime.fromisoformat(timestamp)).total_seconds())
    except ValueError:
        return "?"
