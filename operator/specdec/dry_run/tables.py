"""A plan on a terminal."""

import shlex
from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from specdec.dry_run.plan import LATER, Json
from specdec.terminal import grid, row, screen

NOTES = (
    "assumed: as if every Job and pod did well; nothing was asked of a cluster",
    "names of Jobs and the hash of the repository hold the claim's uid, known in the cluster",
)

_CHOSEN = (
    *("backend", "version", "image", "method", "draftTokens", "maxDraftTokens", "gpuProduct"),
    *("launch", "worldSize", "nodesPerReplica", "gpusPerPod"),
)
# A key or a path that is folded cannot be copied.
_WHOLE = frozenset({"Key", "Name", "Repository file", "Stage"})


def show(plan: Json) -> None:
    """Print what `plan.summary` tells: as wide as the terminal, or as a file may be."""
    console = screen()
    for part in _parts(plan):
        console.print(part)
        console.print()
    later = any(one["basis"] == LATER for one in plan["checkpoints"])
    notes = (*NOTES, f"digests and keys marked with * are placeholders, {LATER}")
    for note in notes if later else NOTES:
        console.print(Text(note, style="dim"))


def _parts(plan: Json) -> Iterator[RenderableType]:
    resource = plan["resource"]
    yield Text(f"{resource['namespace']}/{resource['name']}", style="bold")
    stages = _table("Stage", "Status", "Basis", "Message")
    for one in plan["stages"]:
        row(
            stages, one["type"], f"{one['status']} ({one['reason']})", one["basis"], one["message"]
        )
    yield stages
    if plan["plan"]:
        yield _devices(plan)
    if "memory" in plan["plan"]:
        yield _memory(plan["plan"]["memory"])
    yield from _work(plan)
    for server in plan["servers"]:
        yield _server(server)
    if plan["service"]:
        yield _services(plan)


def _work(plan: Json) -> Iterator[Table]:
    """What is made before anything serves: engines, by which Jobs, and the files."""
    if plan["engines"]:
        yield _engines(plan)
    if plan["jobs"]:
        jobs = _table("Job", "Name", "GPUs", "Command")
        for one in plan["jobs"]:
            row(jobs, one["component"], one["name"], one["gpus"], _line(one["command"]))
        yield jobs
    if plan["repository"]["files"]:
        files = _table("Repository file", "Bytes", "SHA-256")
        for one in plan["repository"]["files"]:
            row(files, one["path"], one["bytes"], one["sha256"][:16])
        yield files


def _devices(plan: Json) -> Table:
    chosen = plan["plan"]
    table = _table("Runtime", "")
    for name in _CHOSEN:
        if name in chosen:
            row(table, name, chosen[name])
    ranks = chosen.get("participantIds", {})
    for role, ids in chosen["devices"].items():
        row(table, f"devices of the {role}", ", ".join(map(str, ids)) or "none (CPU)")
        if ranks.get(role):
            row(table, f"MPI ranks of the {role}", ", ".join(map(str, ranks[role])))
    return table


def _memory(memory: Json) -> Table:
    table = _table("GPU", "Memory", "Used", "Taken by")
    for one in memory["devices"]:
        parts = ", ".join(f"{name} {size}" for name, size in one["parts"].items())
        used = f"{one['usedMiB']} MiB ({one['percent']} %)"
        row(table, one["device"], f"{one['gpuMiB']} MiB", used, parts)
    for role, tokens in memory["kvTokens"].items():
        row(table, f"cache of the {role}", "", f"{tokens} tokens", "")
    return table


def _engines(plan: Json) -> Table:
    table = _table("Engine", "Key", "Mode", "max_draft_len", "dtype", "TP x PP", "Limits")
    for one in plan["engines"]:
        build = one["build"]
        key = one["key"][:16] + ("*" if one["basis"] == LATER else "")
        if not build:
            row(table, one["role"], key, one["basis"], "", "", "", "")
            continue
        limits = ", ".join(f"{name} {value}" for name, value in build["limits"].items())
        row(
            table,
            one["role"],
            key,
            build["speculativeDecodingMode"],
            build["maxDraftTokens"],
            _dtype(build),
            f"{build['tensorParallel']} x {build['pipelineParallel']}",
            limits,
        )
    return table


def _dtype(build: Json) -> str:
    method = (build.get("quantization") or {}).get("method", "None")
    return str(build["dtype"]) if method == "None" else f"{build['dtype']}, {method}"


def _server(server: Json) -> Table:
    table = _table("Server", server["name"])
    each = f" of {server['podsPerReplica']} pods" if server["podsPerReplica"] > 1 else ""
    row(table, "kind", f"{server['kind']}, {server['replicas']} replicas{each}")
    row(table, "GPUs per pod", server["gpusPerPod"])
    for name, value in server["env"].items():
        row(table, f"environment {name}", value)
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


def _table(*heads: str) -> Table:
    return grid(*heads, whole=_WHOLE)


def _line(command: list[str]) -> str:
    return shlex.join(command)
