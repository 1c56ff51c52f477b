"""Print the summary of a plan as tables, for `specdec plan` without `--json`."""

import shlex
from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from specdec.api.conditions import OPTIONAL
from specdec.tools.dry_run.plan import CHECKED, LATER, Json
from specdec.tools.terminal import grid, row, screen

NOTES = (
    "assumed: if every Job and pod succeeds; no cluster was contacted",
    "names of Jobs and the hash of the repository depend on the claim's uid in the cluster",
)

_RUNTIME_FIELDS = (
    *("backend", "version", "image", "method", "draftTokens", "maxDraftTokens"),
    *("gpuProduct", "draftGpuProduct", "launch", "worldSize", "nodesPerReplica", "gpusPerPod"),
)
# Columns that are not wrapped, so that keys and paths can be copied.
_WHOLE = frozenset({"Key", "Name", "Repository file", "Stage"})


def show(plan: Json) -> None:
    """Print the result of `summary`."""
    console = screen()
    for part in _parts(plan):
        console.print(part)
        console.print()
    placeholders = any(item["basis"] == LATER for item in plan["checkpoints"])
    notes = (*NOTES, f"digests and keys marked with * are placeholders, {LATER}")
    for note in notes if placeholders else NOTES:
        console.print(Text(note, style="dim"))


def _parts(plan: Json) -> Iterator[RenderableType]:
    yield Text(verdict(plan), style="bold")
    stages = _table("Stage", "Status", "Message")
    for stage in plan["stages"]:
        status = f"{stage['status']} ({stage['reason']})"
        known = stage["basis"] == CHECKED or stage["status"] != "True"
        message = stage["message"] if known else f"{stage['basis']}: {stage['message']}"
        row(stages, stage["type"], status, message)
    yield stages
    if plan["plan"]:
        yield _runtime(plan)
    if "memory" in plan["plan"]:
        yield _memory(plan["plan"]["memory"])
    yield from _builds(plan)
    for server in plan["servers"]:
        yield _server(server)
    if plan["service"]:
        yield _services(plan)
    if plan["pairs"]:
        yield _pairs(plan["pairs"])


def verdict(plan: Json) -> str:
    """One sentence: that the resource is accepted, what it serves, and what is not known yet."""
    resource, runtime = plan["resource"], plan["plan"]
    served = f"{runtime['method']} on {runtime['backend']} {runtime['version']}" if runtime else ""
    gpus = runtime.get("gpusPerPod", 0)
    parts = [f"{resource['namespace']}/{resource['name']} is accepted: {served}"]
    if runtime:
        parts[0] += f", {gpus} GPU{'s' * (gpus > 1)} in each pod" if gpus else ", no GPU"
    later = [stage["type"] for stage in plan["stages"] if stage["basis"] == LATER]
    if later:
        parts.append(f"{', '.join(later)} are {LATER}")
    warned = [s["type"] for s in plan["stages"] if s["type"] in OPTIONAL and s["status"] == "True"]
    if warned:
        parts.append(f"read the message of {', '.join(warned)}")
    return "; ".join(parts)


def _builds(plan: Json) -> Iterator[Table]:
    """Tables of what is built before pods serve: engines, Jobs and files."""
    for engine in plan["engines"]:
        yield _engine(engine)
        if engine["steps"]:
            yield _steps(engine)
    if plan["jobs"]:
        jobs = _table("Job", "Name", "GPUs")
        commands = _table("Job", "Command")
        for job in plan["jobs"]:
            row(jobs, job["component"], job["name"], job["gpus"])
            row(commands, job["component"], _line(job["command"]))
        yield jobs
        yield commands
    if plan["repository"]["files"]:
        files = _table("Repository file", "Bytes", "SHA-256")
        for file in plan["repository"]["files"]:
            row(files, file["path"], file["bytes"], file["sha256"][:16])
        yield files


def _runtime(plan: Json) -> Table:
    runtime = plan["plan"]
    table = _table("Runtime", "")
    for name in _RUNTIME_FIELDS:
        if name in runtime:
            row(table, name, runtime[name])
    ranks = runtime.get("participantIds", {})
    for role, ids in runtime["devices"].items():
        row(table, f"devices of the {role}", ", ".join(map(str, ids)) or "none (CPU)")
        if ranks.get(role):
            row(table, f"MPI ranks of the {role}", ", ".join(map(str, ranks[role])))
    for role, limits in runtime.get("limits", {}).items():
        text = ", ".join(f"{name} {value}" for name, value in limits.items())
        row(table, f"limits of the {role}", text)
    if "draft" in runtime["devices"] or not runtime.get("maxDraftTokens"):
        return table
    if "draft" in {item["role"] for item in plan["checkpoints"]}:
        row(table, "devices of the draft", "those of the target")
    else:
        row(table, "devices of a draft", "none: no draft model")
    return table


def _memory(memory: Json) -> Table:
    table = _table("GPU", "Memory", "Used", "Taken by")
    for device in memory["devices"]:
        parts = ", ".join(f"{name} {size}" for name, size in device["parts"].items())
        used = f"{device['usedMiB']} MiB ({device['percent']} %)"
        row(table, device["device"], f"{device['gpuMiB']} MiB", used, parts)
    for role, tokens in memory["kvTokens"].items():
        row(table, f"cache of the {role}", "", f"{tokens} tokens", "")
    return table


def _engine(engine: Json) -> Table:
    build, table = engine["build"], _table("Engine", engine["role"])
    row(table, "key", engine["key"][:16] + ("*" if engine["basis"] == LATER else ""))
    if not build:
        row(table, "state", engine["basis"])
        return table
    row(table, "mode", build["speculativeDecodingMode"])
    row(table, "max_draft_len", build["maxDraftTokens"])
    row(table, "dtype", _dtype(build))
    row(table, "TP x PP", f"{build['tensorParallel']} x {build['pipelineParallel']}")
    for name, value in build["limits"].items():
        row(table, name, value)
    return table


def _steps(engine: Json) -> Table:
    table = _table(f"Build of {engine['role']}", "Command")
    if engine["steps"][0]["step"] == "build":
        row(table, "before", f"{LATER}; --checkpoint {engine['role']}=config.json is enough")
    for step in engine["steps"]:
        row(table, step["step"], _line(step["command"]))
    return table


def _dtype(build: Json) -> str:
    method = (build.get("quantization") or {}).get("method", "None")
    return str(build["dtype"]) if method == "None" else f"{build['dtype']}, {method}"


def _server(server: Json) -> Table:
    table = _table("Server", server["name"])
    pods = f" of {server['podsPerReplica']} pods" if server["podsPerReplica"] > 1 else ""
    row(table, "kind", f"{server['kind']}, {server['replicas']} replicas{pods}")
    row(table, "GPUs per pod", server["gpusPerPod"])
    for name, value in server["env"].items():
        row(table, f"environment {name}", value)
    for sidecar in server["sidecars"]:
        row(table, f"sidecar {sidecar['name']}", sidecar["image"])
    row(table, "command", _line(server["command"]))
    return table


def _services(plan: Json) -> Table:
    table = _table("Network", "")
    for service in plan["service"]:
        ports = ", ".join(f"{port['name']} {port['port']}" for port in service["ports"])
        row(table, "Service", f"{service['name']}: {ports}")
    for server in plan["endpoints"]:
        row(table, f"address of the {server['role']}", server["url"])
    return table


def _pairs(pairs: list[Json]) -> Table:
    """What others published for the target; nothing here depends on it."""
    table = _table("Also published for the target", "Draft or heads", "Backends", "Result")
    for pair in pairs:
        draft, result = pair.get("repository", "in the target"), pair.get("result", "")
        row(table, pair["method"], draft, ", ".join(pair["backends"]), result)
    return table


def _table(*heads: str) -> Table:
    return grid(*heads, whole=_WHOLE)


def _line(command: list[str]) -> str:
    return shlex.join(command)
