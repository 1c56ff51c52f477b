"""What the page of a run shows, as plain values: facts, a summary line and details per entry.

`page` renders these values. This module is pure: it only reads the documents that `run` has
written.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from specdec.tools.certify.judgement import equal_answers, speeds
from specdec.tools.certify.timing import total

Json = dict[str, Any]
_STATES = ("passed", "failed", "not tried")


def document(run: Mapping[str, Any], states: Mapping[str, Json]) -> Json:
    """Everything that the page shows.

    Args:
        run: the document of the run.
        states: of each started entry, by name.
    """
    entries = [_entry(item, states) for item in run["entries"]]
    counts = {name: sum(e["outcome"] == name for e in entries) for name in _STATES}
    return {
        "id": run["id"],
        "verdict": "failed" if counts["failed"] else "passed",
        "headline": headline(entries),
        "counts": counts,
        "facts": _facts(run, states),
        "entries": [e for e in entries if e["outcome"] in ("passed", "failed")],
        "notTried": [e for e in entries if e["outcome"] == "not tried"],
        "clients": sorted({count for e in entries for count in e["levels"]}),
    }


def headline(entries: Sequence[Mapping[str, Any]]) -> str:
    """How many entries passed, failed, and were not tried."""
    passed, failed, not_tried = (sum(e["outcome"] == name for e in entries) for name in _STATES)
    tried = passed + failed
    sentence = f"{passed} of {tried} passed"
    if failed:
        sentence = f"{failed} of {tried} failed"
    return f"{sentence}, {not_tried} not tried" if not_tried else sentence


def _entry(item: Mapping[str, Any], states: Mapping[str, Json]) -> Json:
    state = states.get(item["name"], {})
    finished = state.get("outcome") in ("passed", "failed")
    throughput = state.get("throughput")
    baseline = states.get(item["baseline"], {}).get("throughput")
    outcome = state["outcome"] if finished else "not tried"
    status: Json = state.get("status", {})
    timed = state.get("stages", [])
    seconds = total(timed)
    return {
        "name": item["name"],
        "title": item["title"],
        "method": item["method"],
        "outcome": outcome,
        "sentence": state.get("sentence") if finished else item["notTried"] or "not reached",
        "seconds": seconds,
        # Percent of the time of all stages, for the bars.
        "stages": [
            {**stage, "percent": 100 * stage["seconds"] / seconds if seconds else 0}
            for stage in timed
        ],
        "conditions": status.get("conditions", []),
        "engines": status.get("engines", []),
        "speculation": status.get("speculation", {}),
        "benchmark": status.get("benchmark", {}),
        "memory": status.get("plan", {}).get("memory", {}).get("devices", []),
        "levels": {level["concurrency"]: level for level in (throughput or {}).get("levels", [])},
        "speeds": speeds(throughput, baseline),
        "answers": equal_answers(throughput, baseline),
        "servers": state.get("servers", []),
        "history": state.get("history", []),
        "notes": state.get("notes", []),
        "logs": state.get("logs", []),
    }


def _facts(run: Mapping[str, Any], states: Mapping[str, Json]) -> list[tuple[str, str]]:
    """Names and values for the head of the page."""
    request, gpus = run["request"], run.get("gpus")
    plans = [state.get("status", {}).get("plan", {}) for state in states.values()]
    images = sorted({plan["image"] for plan in plans if plan.get("image")})
    gpu = "none"
    if gpus:
        memory = f", {gpus['memory_mib']} MiB each" if gpus["memory_mib"] else ""
        driver = f", driver {gpus['driver']}" if gpus["driver"] else ""
        gpu = f"{gpus['product']}: {gpus['per_node']} on a node, {gpus['total']} in all"
        gpu = f"{gpu}{memory}{driver}"
    heads = [f"{method}: {source}" for method, source in request["heads"].items()]
    return [
        ("Backend", f"{request['backend']} {request['version']}"),
        ("GPUs", gpu),
        ("Server image", ", ".join(images) or "unknown"),
        ("Target", request["target"]),
        ("Draft", request["draft"]),
        *([("Heads", f"{', '.join(heads)}, for {request['headsTarget']}")] if heads else []),
        ("Kubernetes", ", ".join(run.get("kubernetes", ())) or "unknown"),
        ("specdec", run["version"]),
        ("Load", f"{request['prompts']} prompts, up to {request['outputTokens']} tokens each"),
        ("Started", run["startedAt"]),
        ("Finished", run.get("finishedAt", "")),
    ]
