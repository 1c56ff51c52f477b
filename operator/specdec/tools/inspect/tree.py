"""Print what `status.read` returns about one resource as a tree, for `specdec status NAME`.

It only formats; all text from the cluster is escaped.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from specdec.tools.inspect.overview import DONE, color, condition_of, multiple, since
from specdec.tools.terminal import fits, grid, items, plain, row

Json = dict[str, Any]
_WHOLE = frozenset({"key", "name"})
# Terminals with at least this many columns show messages in a column of their own.
_WIDE = 120
# Columns of the branches before each part.
_BRANCHES = 8


def show(console: Console, resource: Json, now: datetime) -> None:
    """Print one resource as a tree."""
    tree = Tree(_head(resource))
    for title, part in _parts(resource, now, console.width):
        tree.add(Text(title, style="bold")).add(part)
    console.print(tree)


def _head(resource: Json) -> Text:
    ready = condition_of(resource, "Ready")
    head = Text(plain(f"{resource['namespace']}/{resource['name']}"), style="bold")
    state = (
        "Suspended"
        if resource["suspended"]
        else resource.get("phase", "not yet reconciled by the operator")
    )
    head.append(plain(f"  {state}"), style=color(ready))
    pods = f"{resource.get('readyReplicas', 0)} of {resource['desiredReplicas']} pods ready"
    head.append(
        plain(f"  {resource['method']} on {resource['backend']}, {pods}"), style="not bold"
    )
    if resource.get("observedGeneration") not in (None, resource["generation"]):
        note = "the operator has not yet reconciled the latest change"
        head.append(f"  {note}", style="not bold yellow")
    return head


def _parts(resource: Json, now: datetime, width: int) -> Iterator[tuple[str, RenderableType]]:
    if resource.get("conditions"):
        show_stages = _narrow_stages if width < _WIDE else _stages
        yield "stages", show_stages(resource["conditions"], now)
    if resource["jobs"]:
        yield "jobs", _jobs(resource["jobs"], now, width - _BRANCHES)
    if resource.get("engines"):
        yield "engines", _engines(resource)
    if resource.get("imageContract"):
        yield "image", _image(resource["imageContract"])
    if resource.get("plan"):
        yield "plan", _plan(resource["plan"])
    yield from _measurements(resource, now)
    if resource["pods"]:
        yield "pods", _pods(resource["pods"], now, width - _BRANCHES)
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
        age = since(condition["lastTransitionTime"], now)
        style = color(condition)
        cells = (condition[key] for key in ("type", "status", "reason"))
        row(table, *(Text(plain(cell), style) for cell in cells), age, condition["message"])
    return table


def _narrow_stages(conditions: Sequence[Json], now: datetime) -> Group:
    """The stages with each message below its stage, where a column would be too narrow."""
    width = max(len(condition["type"]) for condition in conditions)
    lines: list[RenderableType] = []
    for condition in conditions:
        style = color(condition)
        line = Text(f"{condition['type']:{width}}  ")
        line.append(plain(f"{condition['status']:7}  {condition['reason']}"), style)
        line.append(f"  {since(condition['lastTransitionTime'], now)}")
        lines += [line, Padding(Text(plain(condition["message"]), style="dim"), (0, 0, 0, 2))]
    return Group(*lines)


def _jobs(jobs: Sequence[Json], now: datetime, width: int) -> RenderableType:
    table = _grid("work", "name", "state", "progress", "age")
    entries: list[tuple[str, Text, str]] = []
    for job in jobs:
        progress = f"{job['phase']} {job['percent']} %" if "percent" in job else ""
        if job["failures"]:
            progress = f"{progress} {job['failures']} failed".strip()
        style = {"Running": "yellow", "Failed": "red"}.get(job["state"], "")
        state, age = Text(job["state"], style), since(job["createdAt"], now)
        row(table, job["component"], job["name"], state, progress, age)
        cells = (Text(plain(job["component"])), state, Text(plain(progress)), Text(age))
        entries.append((job["name"], _joined(*cells), ""))
    return table if fits(table, width) else items(entries)


def _engines(resource: Json) -> Table:
    table = _grid("role", "state", "key", "took", "job")
    running = {job["name"]: job for job in resource["jobs"] if "percent" in job}
    for engine in resource["engines"]:
        # The Job's log is newer than the status.
        job = engine.get("job", "")
        latest = running.get(job, engine)
        state = engine.get("state", "")
        if state not in DONE and "percent" in latest:
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
    row(table, "measured", f"{since(shown.get('measuredAt', ''), now)} ago")
    row(table, "draft tokens seen", "yes" if shown.get("active") else "no")
    if "acceptancePercent" in shown:
        row(table, "acceptance", _acceptance(shown))
    for source in shown.get("sources", []):
        row(table, f"acceptance of {source['name']}", _acceptance(source))
    if "tokensPerRound" in shown:
        row(table, "tokens per round", shown["tokensPerRound"])
    if "speedupPercent" in shown:
        speed = multiple(shown["speedupPercent"])
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
    age = since(benchmark.get("measuredAt", ""), now)
    row(table, benchmark.get("state", ""), f"{age} ago{stale}")
    for level in benchmark.get("levels", ()):
        speed = multiple(level["speedupPercent"]) if "speedupPercent" in level else "not compared"
        if "speedupInterval" in level:
            low, _, high = level["speedupInterval"].partition("-")
            speed = f"{speed} ({multiple(int(low))} to {multiple(int(high))})"
        row(
            table,
            f"{level['concurrency']} at once",
            f"speed {speed}, of the throughput without drafts",
        )
    if "report" in benchmark:
        row(table, "report", f"{benchmark['report']} on the volume")
    return table


def _pods(pods: Sequence[Json], now: datetime, width: int) -> RenderableType:
    table = _grid("name", "work", "state", "restarts", "age", "node", "")
    entries: list[tuple[str, Text, str]] = []
    for pod in pods:
        name = "Ready" if pod["ready"] and pod["phase"] == "Running" else pod["phase"]
        style = "red" if pod["trouble"] else "green" if name == "Ready" else "yellow"
        state, age = Text(plain(name), style), since(pod["createdAt"], now)
        cells = (pod["component"], state, pod["restarts"], age, pod["node"])
        row(table, pod["name"], *cells, pod["trouble"])
        work, node = Text(plain(pod["component"])), Text(plain(pod["node"]))
        details = _joined(work, state, Text(f"{pod['restarts']} restarts"), Text(age), node)
        entries.append((pod["name"], details, pod["trouble"]))
    return table if fits(table, width) else items(entries)


def _joined(*cells: Text) -> Text:
    """The cells that are not empty, in one line."""
    return Text("  ").join(cell for cell in cells if cell)


def _grid(*heads: str) -> Table:
    return grid(*heads, whole=_WHOLE, show_header=any(heads))
