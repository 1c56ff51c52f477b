"""Print what `status.read` returns: a tree of one resource, or a table of all.

`specdec status` calls it. It only formats; all text from the cluster is escaped.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from specdec.api.conditions import PROBLEMS
from specdec.terminal import ago, grid, plain, row

Json = dict[str, Any]
_DONE = frozenset({"Built", "Prebuilt"})
_WHOLE = frozenset({"key", "name"})
# Terminals with at least this many columns show messages in a column of their own.
_WIDE = 120


def show(console: Console, resource: Json, now: datetime) -> None:
    """Print one resource as a tree."""
    tree = Tree(_head(resource))
    for title, part in _parts(resource, now, narrow=console.width < _WIDE):
        tree.add(Text(title, style="bold")).add(part)
    console.print(tree)


def show_all(console: Console, resources: Sequence[Json], now: datetime) -> None:
    """Print summaries as a table with one line per resource."""
    heads = ("namespace", "name", "method", "ready", "reason", "progress", "accept", "speed")
    table = grid(*(head.upper() for head in (*heads, "age")), whole={"NAME", "NAMESPACE"})
    for resource in resources:
        ready = _condition(resource, "Ready")
        speculation = resource.get("speculation", {})
        row(
            table,
            resource["namespace"],
            resource["name"],
            resource["method"],
            f"{resource.get('readyReplicas', 0)}/{resource['desiredReplicas']}",
            Text(plain(ready.get("reason", "not reconciled")), _style(ready)),
            _build_progress(resource),
            _percent(speculation.get("acceptancePercent")),
            _multiple(speculation.get("speedupPercent")),
            _age(resource["createdAt"], now),
        )
    console.print(table)


def _head(resource: Json) -> Text:
    ready = _condition(resource, "Ready")
    head = Text(plain(f"{resource['namespace']}/{resource['name']}"), style="bold")
    state = (
        "Suspended"
        if resource["suspended"]
        else resource.get("phase", "not yet reconciled by the operator")
    )
    head.append(plain(f"  {state}"), style=_style(ready))
    pods = f"{resource.get('readyReplicas', 0)} of {resource['desiredReplicas']} pods ready"
    head.append(
        plain(f"  {resource['method']} on {resource['backend']}, {pods}"), style="not bold"
    )
    if resource.get("observedGeneration") not in (None, resource["generation"]):
        note = "the operator has not yet reconciled the latest change"
        head.append(f"  {note}", style="not bold yellow")
    return head


def _parts(resource: Json, now: datetime, *, narrow: bool) -> Iterator[tuple[str, RenderableType]]:
    if resource.get("conditions"):
        show_stages = _narrow_stages if narrow else _stages
        yield "stages", show_stages(resource["conditions"], now)
    if resource["jobs"]:
        yield "jobs", _jobs(resource["jobs"], now)
    if resource.get("engines"):
        yield "engines", _engines(resource)
    if resource.get("imageContract"):
        yield "image", _image(resource["imageContract"])
    if resource.get("plan"):
        yield "plan", _plan(resource["plan"])
    yield from _measurements(resource, now)
    if resource["pods"]:
        yield "pods", _pods(resource["pods"], now)
    servers = resource.get("endpoints", [])
    if len(servers) > 1:
        yield "addresses", _addresses(servers)
    elif resource.get("url"):
        yield "address", Text(plain(resource["url"]))


def _measurements(resource: Json, now: datetime) -> Iterator[tuple[str, RenderableType]]:
    if resource.get("speculation"):
        yield "speculation", _speculation(resource["speculation"], now)
    if resource.get("benchmark"):
        yield "benchmark", _benchmark(resource["benchmark"], now)


def _addresses(servers: Sequence[Json]) -> Table:
    """The addresses of two servers, which the client's own loop calls over gRPC."""
    table = _grid("server", "address", "gRPC")
    for server in servers:
        row(table, server["role"], server.get("url", ""), server.get("grpc", ""))
    return table


def _stages(conditions: Sequence[Json], now: datetime) -> Table:
    table = _grid("stage", "status", "reason", "age", "message")
    for condition in conditions:
        age = _age(condition["lastTransitionTime"], now)
        style = _style(condition)
        cells = (condition[key] for key in ("type", "status", "reason"))
        row(table, *(Text(plain(cell), style) for cell in cells), age, condition["message"])
    return table


def _narrow_stages(conditions: Sequence[Json], now: datetime) -> Group:
    """The stages with each message below its stage, where a column would be too narrow."""
    width = max(len(condition["type"]) for condition in conditions)
    lines: list[RenderableType] = []
    for condition in conditions:
        style = _style(condition)
        line = Text(f"{condition['type']:{width}}  ")
        line.append(plain(f"{condition['status']:7}  {condition['reason']}"), style)
        line.append(f"  {_age(condition['lastTransitionTime'], now)}")
        lines += [line, Padding(Text(plain(condition["message"]), style="dim"), (0, 0, 0, 2))]
    return Group(*lines)


def _jobs(jobs: Sequence[Json], now: datetime) -> Table:
    table = _grid("work", "name", "state", "progress", "age")
    for job in jobs:
        progress = f"{job['phase']} {job['percent']} %" if "percent" in job else ""
        if job["failures"]:
            progress = f"{progress} {job['failures']} failed".strip()
        style = {"Running": "yellow", "Failed": "red"}.get(job["state"], "")
        state = Text(job["state"], style)
        row(table, job["component"], job["name"], state, progress, _age(job["createdAt"], now))
    return table


def _engines(resource: Json) -> Table:
    table = _grid("role", "state", "key", "took", "job")
    running = {job["name"]: job for job in resource["jobs"] if "percent" in job}
    for engine in resource["engines"]:
        # The Job's log is newer than the status.
        job = engine.get("job", "")
        latest = running.get(job, engine)
        state = engine.get("state", "")
        if state not in _DONE and "percent" in latest:
            state = f"{state} {latest['percent']} %"
        took = f"{engine['seconds']} s" if "seconds" in engine else ""
        row(table, engine["role"], state, engine.get("key", "")[:16], took, job)
    return table


def _image(contract: Json) -> Table:
    """What the builds compared of the server's image."""
    table = _grid("", "")
    row(table, "TensorRT-LLM", contract.get("version", ""))
    row(table, "compared", f"{contract.get('templates')} templates, {contract.get('flags')} flags")
    row(table, "request fields", ", ".join(contract.get("requestFields", {}).values()))
    if contract.get("warning"):
        row(table, "differs", Text(plain(contract["warning"]), "yellow"))
    return table


def _plan(plan: Json) -> Table:
    table = _grid("", "")
    row(table, "serves with", f"{plan.get('backend', '')} {plan.get('version', '')}".strip())
    most = plan.get("maxDraftTokens", 0)
    drafts = f"{plan['draftTokens']} of at most {most}" if "draftTokens" in plan else str(most)
    row(table, "draft tokens", drafts)
    if plan.get("gpusPerPod"):
        product = plan.get("gpuProduct", "product not set")
        draft = f", {plan['draftGpuProduct']} for the draft" if "draftGpuProduct" in plan else ""
        row(table, "GPUs per pod", f"{plan['gpusPerPod']} ({product}{draft})")
    memory = plan.get("memory", {})
    for device in memory.get("devices", ()):
        parts = ", ".join(f"{name} {size}" for name, size in device.get("parts", {}).items())
        used = f"{device['usedMiB']} of {device['gpuMiB']} MiB ({device['percent']} %)"
        row(table, f"memory of {device['device']}", f"{used}: {parts}")
    for role, tokens in memory.get("kvTokens", {}).items():
        row(table, f"cache of the {role}", f"{tokens} tokens")
    return table


def _speculation(speculation: Json, now: datetime) -> Table:
    table = _grid("", "")
    stale = speculation.get("stale")
    shown = speculation.get("previous", {}) if stale else speculation
    if stale:
        row(table, "stale", Text("the desired revision has no result yet", "yellow"))
    row(table, "measured", f"{_age(shown.get('measuredAt', ''), now)} ago")
    row(table, "draft tokens seen", "yes" if shown.get("active") else "no")
    if "acceptancePercent" in shown:
        row(table, "acceptance", _acceptance(shown))
    for source in shown.get("sources", []):
        row(table, f"acceptance of {source['name']}", _acceptance(source))
    if "tokensPerRound" in shown:
        row(table, "tokens per round", shown["tokensPerRound"])
    if "speedupPercent" in shown:
        speed = _multiple(shown["speedupPercent"])
        row(table, "speed", f"{speed} of the target alone, one request at a time")
    if "matched" in shown:
        equal = f"{shown['matched']} of {shown['prompts']}"
        row(table, "answers", f"{equal} equal those of the target alone")
    for name in ("divergence", "failure"):
        if name in shown:
            row(table, name, shown[name])
    return table


def _acceptance(shown: Json) -> str:
    counts = f"{shown['acceptedTokens']} of {shown['draftedTokens']} draft tokens"
    return f"{shown['acceptancePercent']} % ({counts})"


def _benchmark(benchmark: Json, now: datetime) -> Table:
    table = _grid("", "")
    stale = ", stale: the desired revision has no result yet" if benchmark.get("stale") else ""
    age = _age(benchmark.get("measuredAt", ""), now)
    row(table, benchmark.get("state", ""), f"{age} ago{stale}")
    for level in benchmark.get("levels", ()):
        speed = _multiple(level["speedupPercent"]) if "speedupPercent" in level else "not compared"
        if "speedupInterval" in level:
            low, _, high = level["speedupInterval"].partition("-")
            speed = f"{speed} ({_multiple(int(low))} to {_multiple(int(high))})"
        row(table, f"{level['concurrency']} at once", f"speed {speed}")
    if "report" in benchmark:
        row(table, "report", f"{benchmark['report']} on the volume")
    return table


def _pods(pods: Sequence[Json], now: datetime) -> Table:
    table = _grid("name", "work", "state", "restarts", "age", "node", "")
    for pod in pods:
        state = "Ready" if pod["ready"] and pod["phase"] == "Running" else pod["phase"]
        style = "red" if pod["trouble"] else "green" if state == "Ready" else "yellow"
        row(
            table,
            pod["name"],
            pod["component"],
            Text(plain(state), style),
            pod["restarts"],
            _age(pod["createdAt"], now),
            pod["node"],
            pod["trouble"],
        )
    return table


def _build_progress(resource: Json) -> str:
    """The progress of running engine builds."""
    builds = (
        f"{engine['role']} {engine['percent']} %"
        for engine in resource.get("engines", ())
        if engine.get("state") not in _DONE and "percent" in engine
    )
    return ", ".join(builds)


def _condition(resource: Json, kind: str) -> Json:
    conditions: list[Json] = resource.get("conditions", [])
    return next((item for item in conditions if item["type"] == kind), {})


def _style(condition: Json) -> str:
    if condition.get("status") == "True":
        return "green"
    return "red" if condition.get("reason") in PROBLEMS else "yellow"


def _percent(value: int | None) -> str:
    return "-" if value is None else f"{value}%"


def _multiple(percent: int | None) -> str:
    """A speed in percent of the target alone, as a multiple of it."""
    return "-" if percent is None else f"{percent / 100:.2f}x"


def _age(timestamp: str, now: datetime) -> str:
    """The age of a timestamp of the API; `?` where there is none."""
    try:
        return ago((now - datetime.fromisoformat(timestamp)).total_seconds())
    except ValueError:
        return "?"


def _grid(*heads: str) -> Table:
    return grid(*heads, whole=_WHOLE, show_header=any(heads))
