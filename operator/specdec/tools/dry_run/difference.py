"""Compare two plans, for `specdec plan --diff`: what is fetched, built, restarted or scaled.

`compare` returns the JSON that the command prints, with stable keys; `sentences` renders it as
text. Both are pure.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from specdec.api import names
from specdec.tools.dry_run.plan import Json, ResourcePlan, pod_templates

Change = dict[str, Any]
# Parts of a pod template that only change because the repository changes.
_REPOSITORY_FIELDS = (names.REPOSITORY, "--model-repository=", f"{names.REPOSITORIES}/.manifest-")


def compare(before: ResourcePlan, after: ResourcePlan) -> Json:
    """The effects of a change from one plan to the other.

    Returns:
        `fetch` (sources), `rebuild` (engines with the inputs that changed), `republish` (files),
        `restart` (fields of the pod template), `rollout` (how the pods restart), `scale`
        (replicas) and `other` (claim and Service). Each is empty without a change. A change is
        `{"field", "from", "to"}`. `rollout` has `strategy`, `maxSurge`, `maxUnavailable`, and
        `interrupts`: whether no pod serves for a time.
    """
    republish = _files(before, after)
    restart = _template(before, after)
    return {
        "fetch": _fetch(before, after),
        "rebuild": list(_rebuild(before, after)),
        "republish": republish,
        "restart": restart,
        "rollout": _rollout(after) if restart else {},
        "scale": _changes({"replicas": _replicas(before)}, {"replicas": _replicas(after)}),
        "other": [*_other(before, after)],
    }


def sentences(difference: Json) -> list[str]:
    """The comparison as one sentence per effect, the most expensive first."""
    lines = [
        f"fetch {role} again: its source or its claim changed" for role in difference["fetch"]
    ]
    lines += [
        f"rebuild {item['role']}: {_join(item['changed'])}" for item in difference["rebuild"]
    ]
    files = difference["republish"]
    if files:
        counts = [
            f"{len(paths)} {change} ({_first(paths)})" for change, paths in files.items() if paths
        ]
        lines.append(f"republish the repository: {', '.join(counts) or 'on another claim'}")
    if difference["restart"]:
        order = _order(difference["rollout"])
        lines.append(f"restart the pods, {order}: {_join(difference['restart'])}")
    lines += [f"change {_join([change])}" for change in difference["other"]]
    if difference["scale"]:
        lines.append(f"scale: {_join(difference['scale'])}")
    if not lines:
        return ["nothing changes"]
    participles = {"rebuild": "rebuilt", "republish": "republished", "restart": "restarted"}
    absent = [word for effect, word in participles.items() if not difference[effect]]
    if absent:
        lines.append(f"nothing is {' or '.join(absent)}")
    return lines


def _fetch(before: ResourcePlan, after: ResourcePlan) -> list[str]:
    old = {model["source"] for model in before.status.get("models", [])}
    return [m["role"] for m in after.status.get("models", []) if m["source"] not in old]


def _rebuild(before: ResourcePlan, after: ResourcePlan) -> Iterator[Json]:
    """The engines to build: those whose Job, named by key and claim, does not exist."""
    old = {entry["role"]: (entry, build) for entry, build in before.engines()}
    existing = {entry["job"] for entry, build in old.values() if build}
    for entry, build in after.engines():
        if not build or entry["job"] in existing:
            continue
        previous = old.get(entry["role"])
        changed = [{"field": "engine", "from": None, "to": entry["role"]}]
        if previous is not None and previous[1]:
            changed = _changes(_inputs(before, previous[1]), _inputs(after, build))
        yield {"role": entry["role"], "changed": changed}


def _inputs(plan: ResourcePlan, build: Json) -> Json:
    inputs = {k: v for k, v in build.items() if k not in ("key", "output")}
    # maxSeqLen as in the spec: a build adds room for draft tokens, which is no separate change.
    longest = build["limits"]["maxSeqLen"] - build["maxDraftTokens"]
    inputs["limits"] = {**build["limits"], "maxSeqLen": longest}
    return {**inputs, "image": plan.status["plan"]["image"], "claim": plan.volume}


def _files(before: ResourcePlan, after: ResourcePlan) -> dict[str, list[str]]:
    """Changed files of the repository; empty if its hash is the same."""
    hashes = [plan.status.get("repository", {}).get("hash") for plan in (before, after)]
    if hashes[0] == hashes[1]:
        return {}
    old, new = before.files, after.files
    return {
        "changed": sorted(path for path in old.keys() & new.keys() if old[path] != new[path]),
        "added": sorted(new.keys() - old.keys()),
        "removed": sorted(old.keys() - new.keys()),
    }


def _template(before: ResourcePlan, after: ResourcePlan) -> list[Change]:
    """Changes of the pod templates; a new repository is the first change and counts once."""
    if not after.servers:
        return []
    old = {name: pod_templates(server) for name, server in before.servers.items()}
    new = {name: pod_templates(server) for name, server in after.servers.items()}
    changes = [
        {**change, "field": f"{name}.{change['field']}" if len(new) > 1 else change["field"]}
        for name in new
        if name in old
        for change in _changes(old[name], new[name])
    ]
    own = [change for change in changes if not _is_about_repository(change)]
    if len(own) < len(changes):
        hashes = [p.status.get("repository", {}).get("hash", "") for p in (before, after)]
        own.insert(0, {"field": "repository", "from": hashes[0][:16], "to": hashes[1][:16]})
    removed = [{"field": "server", "from": name, "to": None} for name in old if name not in new]
    added = [{"field": "server", "from": None, "to": name} for name in new if name not in old]
    return [*own, *removed, *added]


def _rollout(plan: ResourcePlan) -> Json:
    """How the pods are replaced; all servers of a resource have the same strategy."""
    spec = next(server["spec"] for server in plan.servers.values())
    strategy = spec.get("strategy") or spec["rolloutStrategy"]
    bounds = strategy.get("rollingUpdate") or strategy.get("rollingUpdateConfiguration") or {}
    surge, unavailable = bounds.get("maxSurge", 0), bounds.get("maxUnavailable", spec["replicas"])
    return {
        "strategy": strategy["type"],
        "maxSurge": surge,
        "maxUnavailable": unavailable,
        "interrupts": 0 < spec["replicas"] <= unavailable,
    }


def _order(rollout: Json) -> str:
    if rollout["strategy"] == "Recreate":
        order = "all old ones stop before new ones start"
    elif not rollout["maxSurge"]:
        order = "an old one stops before a new one starts"
    else:
        both = rollout["maxUnavailable"]
        order = "old ones stop while new ones start" if both else "new ones are ready first"
    return f"{order}, and no pod serves in between" if rollout["interrupts"] else order


def _is_about_repository(change: Change) -> bool:
    text = f"{change['field']} {change['to']}"
    return any(part in text for part in _REPOSITORY_FIELDS)


def _replicas(plan: ResourcePlan) -> int:
    return next((server["spec"]["replicas"] for server in plan.servers.values()), 0)


def _other(before: ResourcePlan, after: ResourcePlan) -> Iterator[Change]:
    for component, kind in (("storage", "PersistentVolumeClaim"), ("network", "Service")):
        old, new = before.of(component, kind), after.of(component, kind)
        yield from _changes(
            {kind: [_name_and_spec(o) for o in old]}, {kind: [_name_and_spec(n) for n in new]}
        )


def _name_and_spec(obj: Json) -> Json:
    return {"name": obj["metadata"]["name"], "spec": obj["spec"]}


def _changes(old: Any, new: Any) -> list[Change]:
    """The values that differ, by their path; a missing value is None."""
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


def _join(changes: list[Change]) -> str:
    return ", ".join(f"{c['field']} {_shown(c['from'])} -> {_shown(c['to'])}" for c in changes)


def _shown(value: Any) -> str:
    return "(none)" if value is None else str(value)[:100]


def _first(paths: list[str], limit: int = 6) -> str:
    rest = f" and {len(paths) - limit} more" if len(paths) > limit else ""
    return ", ".join(paths[:limit]) + rest
