"""What `specdec status` shows: a tree of one resource, or a table of all."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from specdec.api.conditions import PROBLEMS
from specdec.terminal import ago, grid, plain, row

Json = dict[str, Any]
_DONE = frozenset({"Built", "Prebuilt"})
_WHOLE = frozenset({"key", "name"})


def show(console: Console, told: Json, now: datetime) -> None:
    """Print what `status.read` tells as a tree."""
    tree = Tree(_head(told))
    for title, part in _parts(told, now):
        tree.add(Text(title, style="bold")).add(part)
    console.print(tree)


def show_all(console: Console, found: Sequence[Json], now: datetime) -> None:
    """Print summaries as a table: one line a resource."""
    heads = ("namespace", "name", "method", "ready", "progress", "pods", "accept", "speedup")
    table = grid(*(head.upper() for head in (*heads, "age")), whole={"NAME", "NAMESPACE"})
    for one in found:
        ready = _condition(one, "Ready")
        words = Text(f"{ready.get('status', 'Unknown')} ({ready.get('reason', 'not seen')})")
        words.stylize(_style(ready))
        measured = one.get("speculation", {})
        row(
            table,
            one["namespace"],
            one["name"],
            one["method"],
            words,
            _working(one),
            f"{one.get('readyReplicas', 0)}/{one['wantedReplicas']}",
            _percent(measured.get("acceptancePercent")),
            _percent(measured.get("speedupPercent")),
            _since(one["createdAt"], now),
        )
    console.print(table)


def _head(told: Json) -> Text:
    ready = _condition(told, "Ready")
    head = Text(plain(f"{told['namespace']}/{told['name']}"), style="bold")
    state = "Suspended" if told["suspended"] else told.get("phase", "not yet seen by the operator")
    head.append(plain(f"  {state}"), style=_style(ready))
    pods = f"{told.get('readyReplicas', 0)} of {told['wantedReplicas']} pods ready"
    head.append(plain(f"  {told['method']} on {told['backend']}, {pods}"), style="not bold")
    if told.get("observedGeneration") not in (None, told["generation"]):
        words = "the operator has not yet looked at the latest change"
        head.append(f"  {words}", style="not bold yellow")
    return head


def _parts(told: Json, now: datetime) -> Iterator[tuple[str, RenderableType]]:
    if told.get("conditions"):
        yield "stages", _stages(told["conditions"], now)
    if told["jobs"]:
        yield "jobs", _jobs(told["jobs"], now)
    if told.get("engines"):
        yield "engines", _engines(told)
    if told.get("plan"):
        yield "plan", _plan(told["plan"])
    if told.get("speculation"):
        yield "speculation", _speculation(told["speculation"], now)
    if told.get("benchmark"):
        yield "benchmark", _benchmark(told["benchmark"], now)
    if told["pods"]:
        yield "pods", _pods(told["pods"], now)
    servers = told.get("endpoints", [])
    if len(servers) > 1:
        yield "addresses", _addresses(servers)
    elif told.get("url"):
        yield "address", Text(plain(told["url"]))


def _addresses(servers: Sequence[Json]) -> Table:
    """Of a service with two servers: the client's loop asks both over gRPC."""
    table = _grid("server", "address", "gRPC")
    for one in servers:
        row(table, one["role"], one.get("url", ""), one.get("grpc", ""))
    return table


def _stages(conditions: Sequence[Json], now: datetime) -> Table:
    table = _grid("stage", "status", "reason", "age", "message")
    for one in conditions:
        age = _since(one["lastTransitionTime"], now)
        cells = (one["type"], one["status"], one["reason"])
        row(table, *(Text(plain(cell), _style(one)) for cell in cells), age, one["message"])
    return table


def _jobs(jobs: Sequence[Json], now: datetime) -> Table:
    table = _grid("work", "name", "state", "progress", "age")
    for one in jobs:
        far = f"{one['phase']} {one['percent']} %" if "percent" in one else ""
        if one["failures"]:
            far = f"{far} {one['failures']} failed".strip()
        style = {"Running": "yellow", "Failed": "red"}.get(one["state"], "")
        state = Text(one["state"], style)
        row(table, one["component"], one["name"], state, far, _since(one["createdAt"], now))
    return table


def _engines(told: Json) -> Table:
    table = _grid("role", "state", "key", "took", "job")
    running = {job["name"]: job for job in told["jobs"] if "percent" in job}
    for one in told["engines"]:
        # The Job's own word is newer than the status.
        far = running.get(one.get("job", ""), one)
        shown = one.get("state", "")
        if shown not in _DONE and "percent" in far:
            shown = f"{shown} {far['percent']} %"
        took = f"{one['seconds']} s" if "seconds" in one else ""
        row(table, one["role"], shown, one.get("key", "")[:16], took, one.get("job", ""))
    return table


def _plan(plan: Json) -> Table:
    table = _grid("", "")
    row(table, "serves with", f"{plan.get('backend', '')} {plan.get('version', '')}".strip())
    drafts = f"{plan.get('draftTokens', 0)} of at most {plan.get('maxDraftTokens', 0)}"
    row(table, "draft tokens", drafts)
    if plan.get("gpusPerPod"):
        product = plan.get("gpuProduct", "product not set")
        row(table, "GPUs per pod", f"{plan['gpusPerPod']} ({product})")
    memory = plan.get("memory", {})
    for one in memory.get("devices", ()):
        parts = ", ".join(f"{name} {size}" for name, size in one.get("parts", {}).items())
        used = f"{one['usedMiB']} of {one['gpuMiB']} MiB ({one['percent']} %)"
        row(table, f"memory of {one['device']}", f"{used}: {parts}")
    for role, tokens in memory.get("kvTokens", {}).items():
        row(table, f"cache of the {role}", f"{tokens} tokens")
    return table


def _speculation(found: Json, now: datetime) -> Table:
    table = _grid("", "")
    shown = found.get("previous", {}) if found.get("stale") else found
    if found.get("stale"):
        row(table, "stale", Text("measured of a revision that does not serve any more", "yellow"))
    row(table, "measured", f"{_since(shown.get('measuredAt', ''), now)} ago")
    row(table, "draft tokens seen", "yes" if shown.get("active") else "no")
    if "acceptancePercent" in shown:
        counts = f"{shown['acceptedTokens']} of {shown['draftedTokens']} draft tokens"
        row(table, "acceptance", f"{shown['acceptancePercent']} % ({counts})")
    if "tokensPerRound" in shown:
        row(table, "tokens per round", shown["tokensPerRound"])
    if "speedupPercent" in shown:
        row(table, "speed", f"{shown['speedupPercent']} % of the target's alone, one at a time")
    if "matched" in shown:
        row(table, "answers", f"{shown['matched']} of {shown['prompts']} are the target's own")
    for name in ("divergence", "failure"):
        if name in shown:
            row(table, name, shown[name])
    return table


def _benchmark(found: Json, now: datetime) -> Table:
    table = _grid("", "")
    stale = ", stale: of a revision that does not serve any more" if found.get("stale") else ""
    row(table, found.get("state", ""), f"{_since(found.get('measuredAt', ''), now)} ago{stale}")
    for one in found.get("levels", ()):
        speed = f"{one['speedupPercent']} %" if "speedupPercent" in one else "not compared"
        if "speedupInterval" in one:
            speed = f"{speed} ({one['speedupInterval']})"
        row(table, f"{one['concurrency']} at once", f"speed {speed}")
    if "report" in found:
        row(table, "report", f"{found['report']} on the volume")
    return table


def _pods(pods: Sequence[Json], now: datetime) -> Table:
    table = _grid("name", "work", "state", "restarts", "age", "node", "")
    for one in pods:
        state = "Ready" if one["ready"] and one["phase"] == "Running" else one["phase"]
        style = "red" if one["trouble"] else "green" if state == "Ready" else "yellow"
        row(
            table,
            one["name"],
            one["component"],
            Text(plain(state), style),
            one["restarts"],
            _since(one["createdAt"], now),
            one["node"],
            one["trouble"],
        )
    return table


def _working(told: Json) -> str:
    """How far engines that are being built are."""
    busy = (
        f"{one['role']} {one['percent']} %"
        for one in told.get("engines", ())
        if one.get("state") not in _DONE and "percent" in one
    )
    return ", ".join(busy)


def _condition(told: Json, kind: str) -> Json:
    found: list[Json] = told.get("conditions", [])
    return next((one for one in found if one["type"] == kind), {})


def _style(condition: Json) -> str:
    if condition.get("status") == "True":
        return "green"
    return "red" if condition.get("reason") in PROBLEMS else "yellow"


def _percent(value: int | None) -> str:
    return "-" if value is None else f"{value} %"


def _since(stamp: str, now: datetime) -> str:
    """How long ago a time of the API was; `?` where there is none."""
    try:
        return ago((now - datetime.fromisoformat(stamp)).total_seconds())
    except ValueError:
        return "?"


def _grid(*heads: str) -> Table:
    return grid(*heads, whole=_WHOLE, show_header=any(heads))
