"""What a changed resource costs: what is fetched, built, published, restarted or only scaled."""

from collections.abc import Iterator, Mapping
from typing import Any

from specdec.api import names
from specdec.dry_run.plan import Json, Plan, pods

Change = dict[str, Any]
# Of the pod template, what follows from a new repository and says nothing of its own.
_FOLLOWS = (names.REPOSITORY, "--model-repository=", f"{names.REPOSITORIES}/.manifest-")


def compare(before: Plan, after: Plan) -> Json:
    """What going from one plan to the other does.

    Returns:
        `fetch` (sources), `rebuild` (engines with the inputs that changed), `republish` (files),
        `restart` (fields of the pod template), `scale` (replicas) and `other` (claim and
        Service); each empty where nothing happens. A change is `{"field", "from", "to"}`.
    """
    republish = _files(before, after)
    restart = _template(before, after)
    return {
        "fetch": _fetch(before, after),
        "rebuild": list(_rebuild(before, after)),
        "republish": republish,
        "restart": restart,
        "scale": _changes({"replicas": _replicas(before)}, {"replicas": _replicas(after)}),
        "other": [*_other(before, after)],
    }


def sentences(difference: Json) -> list[str]:
    """The comparison in words, one line each, most costly first."""
    lines = [
        f"fetch {role} again: its source or its claim changed" for role in difference["fetch"]
    ]
    lines += [f"rebuild {one['role']}: {_told(one['changed'])}" for one in difference["rebuild"]]
    files = difference["republish"]
    if files:
        told = [f"{len(paths)} {how} ({_some(paths)})" for how, paths in files.items() if paths]
        lines.append(f"republish the repository: {', '.join(told) or 'on another claim'}")
    if difference["restart"]:
        lines.append(f"restart the pods, new before old: {_told(difference['restart'])}")
    lines += [f"change {_told([one])}" for one in difference["other"]]
    if difference["scale"]:
        lines.append(f"scale: {_told(difference['scale'])}")
    quiet = [what for what in ("rebuild", "republish", "restart") if not difference[what]]
    names_ = {"rebuild": "rebuilt", "republish": "republished", "restart": "restarted"}
    if not lines:
        return ["nothing changes"]
    return [*lines, *([f"nothing is {' or '.join(names_[q] for q in quiet)}"] if quiet else [])]


def _fetch(before: Plan, after: Plan) -> list[str]:
    old = {model["source"] for model in before.status.get("models", [])}
    return [m["role"] for m in after.status.get("models", []) if m["source"] not in old]


def _rebuild(before: Plan, after: Plan) -> Iterator[Json]:
    """Engines that are not there yet. A Job's name holds the engine's key and its claim."""
    old = {entry["role"]: (entry, build) for entry, build in before.engines()}
    there = {entry["job"] for entry, build in old.values() if build}
    for entry, build in after.engines():
        if not build or entry["job"] in there:
            continue
        last = old.get(entry["role"])
        changed = [{"field": "engine", "from": None, "to": entry["role"]}]
        if last is not None and last[1]:
            changed = _changes(_inputs(before, last[1]), _inputs(after, build))
        yield {"role": entry["role"], "changed": changed}


def _inputs(plan: Plan, build: Json) -> Json:
    inputs = {k: v for k, v in build.items() if k not in ("key", "output")}
    return {**inputs, "image": plan.status["plan"]["image"], "claim": plan.volume}


def _files(before: Plan, after: Plan) -> dict[str, list[str]]:
    """Files of the repository that change; empty when the very same one stays."""
    hashes = [plan.status.get("repository", {}).get("hash") for plan in (before, after)]
    if hashes[0] == hashes[1]:
        return {}
    old, new = before.files, after.files
    return {
        "changed": sorted(path for path in old.keys() & new.keys() if old[path] != new[path]),
        "added": sorted(new.keys() - old.keys()),
        "removed": sorted(old.keys() - new.keys()),
    }


def _template(before: Plan, after: Plan) -> list[Change]:
    """Changes of the pod templates; a new repository comes first and as one."""
    if not after.servers:
        return []
    old = {name: pods(server) for name, server in before.servers.items()}
    new = {name: pods(server) for name, server in after.servers.items()}
    both = [name for name in new if name in old]
    found = [
        {**one, "field": f"{name}.{one['field']}" if len(new) > 1 else one["field"]}
        for name in both
        for one in _changes(old[name], new[name])
    ]
    own = [one for one in found if not _following(one)]
    if len(own) < len(found):
        hashes = [p.status.get("repository", {}).get("hash", "") for p in (before, after)]
        own.insert(0, {"field": "repository", "from": hashes[0][:16], "to": hashes[1][:16]})
    gone = [{"field": "server", "from": name, "to": None} for name in old if name not in new]
    came = [{"field": "server", "from": None, "to": name} for name in new if name not in old]
    return [*own, *gone, *came]


def _following(change: Change) -> bool:
    where = f"{change['field']} {change['to']}"
    return any(mark in where for mark in _FOLLOWS)


def _replicas(plan: Plan) -> int:
    return next((server["spec"]["replicas"] for server in plan.servers.values()), 0)


def _other(before: Plan, after: Plan) -> Iterator[Change]:
    for component, kind in (("storage", "PersistentVolumeClaim"), ("network", "Service")):
        old, new = before.of(component, kind), after.of(component, kind)
        yield from _changes({kind: [_own(one) for one in old]}, {kind: [_own(one) for one in new]})


def _own(obj: Json) -> Json:
    return {"name": obj["metadata"]["name"], "spec": obj["spec"]}


def _changes(old: Any, new: Any) -> list[Change]:
    """The leaves that differ, by their path; a leaf that is not there is None."""
    before, after = dict(_leaves(old, "")), dict(_leaves(new, ""))
    paths = dict.fromkeys([*before, *after])
    return [
        {"field": path, "from": before.get(path), "to": after.get(path)}
        for path in paths
        if before.get(path) != after.get(path)
    ]


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{number}]")
    else:
        yield path, value


def _told(changes: list[Change]) -> str:
    return ", ".join(f"{c['field']} {_shown(c['from'])} -> {_shown(c['to'])}" for c in changes)


def _shown(value: Any) -> str:
    return "(none)" if value is None else str(value)[:100]


def _some(paths: list[str], most: int = 6) -> str:
    rest = f" and {len(paths) - most} more" if len(paths) > most else ""
    return ", ".join(paths[:most]) + rest
