"""The parts of a migration to another backend that all backends share.

`migration.py` of a backend's package has `migrate(body)`. A field that only the other backend has
is removed. A field that decides what is served, and has no equivalent, is reported instead: only
the user can replace it.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from specdec.api.matrix import support
from specdec.api.model import Limits

Body = dict[str, Any]
_IDENTITY = ("name", "namespace", "labels", "annotations")
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True)
class Migration:
    """The result of a migration.

    Attributes:
        body: the equivalent resource; None if there is a need.
        changes: one sentence for each field that differs.
        needs: one sentence for each field that has no equivalent, with what to set instead.
    """

    body: Body | None
    changes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


def migrated(
    body: Body,
    sources: tuple[str, ...],
    needs: Callable[[Mapping[str, Any]], Iterator[str]],
    changes: Callable[[Body], Iterator[str]],
) -> Migration:
    """The equivalent of a valid resource of one of the backends `sources`.

    Args:
        body: the resource.
        sources: the backends that can migrate.
        needs: what has no equivalent in a spec.
        changes: changes a copy of the resource; yields a sentence for each change.
    """
    spec = body["spec"]
    if missing := tuple(from_backend(spec, sources)) or tuple(needs(spec)):
        return Migration(None, needs=missing)
    changed = cleaned(body)
    return Migration(changed, tuple(changes(changed)))


def cleaned(body: Body) -> Body:
    """A copy without what the API server and kubectl add."""
    copied = copy.deepcopy({**body, "metadata": _identity(body["metadata"])})
    copied.pop("status", None)
    return copied


def _identity(metadata: Mapping[str, Any]) -> Body:
    kept = {name: metadata[name] for name in _IDENTITY if name in metadata}
    notes = kept.get("annotations") or {}
    if _APPLIED in notes:
        kept["annotations"] = {name: text for name, text in notes.items() if name != _APPLIED}
    return {name: value for name, value in kept.items() if value}


def from_backend(spec: Mapping[str, Any], sources: tuple[str, ...]) -> Iterator[str]:
    """A need where the resource is of no backend that can migrate."""
    backend = spec["runtime"]["backend"]
    if backend not in sources:
        yield f"spec.runtime.backend is {backend}: give a resource of backend {_any(sources)}"


def formats(spec: Mapping[str, Any], to: str) -> Iterator[str]:
    """Needs of number formats: a backend that builds nothing quantizes nothing."""
    models = {"spec.target": spec["target"]}
    if "draftTarget" in spec["speculation"]:
        models["spec.speculation.draftTarget.draft"] = spec["speculation"]["draftTarget"]["draft"]
    for path, model in models.items():
        quantization = model.get("quantization", {})
        method = quantization.get("method", "None")
        if method != "None":
            yield (
                f"{path}.quantization.method is {method}, and backend {to} serves checkpoints as "
                f"they are: set {path}.source to a checkpoint that is already quantized, and "
                "method to None"
            )
        # A draft has the formats of the target.
        if path != "spec.target":
            continue
        if quantization.get("kvCache") == "INT8":
            yield f"{path}.quantization.kvCache is INT8: set it to FP8 or Auto"
        if (dtype := model.get("dtype", "Auto")) not in support(to).dtypes:
            yield f"{path}.dtype is {dtype}: set it to one of {', '.join(support(to).dtypes)}"


def sizes(spec: Mapping[str, Any], to: str) -> Iterator[str]:
    """Needs of models that are split over more than the GPUs of one pod can hold."""
    stages = spec["target"].get("parallelism", {}).get("pipeline", 1)
    if stages > 1 and spec["speculation"]["method"] != "None":
        yield (
            f"spec.target.parallelism.pipeline is {stages}, and backend {to} does not speculate "
            "in pipeline stages: set it to 1 and raise tensor"
        )
    nodes = spec.get("serving", {}).get("nodesPerReplica", 1)
    if nodes > 1:
        yield (
            f"spec.serving.nodesPerReplica is {nodes}, and backend {to} serves a replica in one "
            "pod: set it to 1, and choose parallelism or a quantized checkpoint that fits one node"
        )


def open_limits(spec: Mapping[str, Any], to: str) -> Iterator[str]:
    """A change where limits are open: those of engines are fixed, others follow from memory."""
    given = spec["target"].get("limits", {})
    if left := [name for name in Limits().model_dump(by_alias=True) if name not in given]:
        yield (
            f"spec.target.limits leaves {', '.join(left)} open: {to} computes them from the "
            "checkpoint and the memory of the GPU"
        )


def backend(runtime: dict[str, Any], to: str, with_engines: str) -> Iterator[str]:
    """Set the backend; engines of `with_engines` stay on the volume without a use."""
    had, runtime["backend"] = runtime["backend"] == with_engines, to
    yield f"spec.runtime.backend is {to}" + (": engines on the volume are not used" if had else "")


def frontend(runtime: dict[str, Any], to: str) -> Iterator[str]:
    """Replace a front end that the backend lacks by its own one beside Triton."""
    known = tuple(support(to).fronts)
    if runtime.get("frontend", known[0]) not in known:
        runtime["frontend"] = known[-1]
        yield f"spec.runtime.frontend is {known[-1]}, the OpenAI server of backend {to}"


def release(runtime: dict[str, Any], to: str) -> Iterator[str]:
    """Remove a version that the backend lacks, and its image."""
    given, known = runtime.get("version"), support(to).versions
    if given is not None and given not in known:
        del runtime["version"]
        yield (
            f"spec.runtime.version {given} is removed: backend {to} has {', '.join(known)}, and "
            f"{support(to).default_version} by default"
        )
        if runtime.pop("image", None):
            yield "spec.runtime.image is removed: it was the image of that version"


def lengths(speculation: dict[str, Any]) -> Iterator[str]:
    """Replace draftTokens, which requests can override, by maxDraftTokens of the server."""
    if (length := speculation.pop("draftTokens", None)) is None:
        return
    if speculation["method"] == "None" or length == 0:
        yield "spec.speculation.draftTokens is removed: no request can set a draft length"
        return
    speculation["maxDraftTokens"] = length
    yield (
        f"spec.speculation.maxDraftTokens is {length}, the value of draftTokens: no request can "
        "set a draft length"
    )


def removed(body: Body, fields: Mapping[str, str]) -> Iterator[str]:
    """Remove fields; `fields` has the reason by path."""
    for path, why in fields.items():
        if remove(body, path.split(".")):
            yield f"{path} is removed: {why}"


def remove(value: dict[str, Any], path: list[str]) -> bool:
    """Remove a field, and objects that are empty then; returns whether the field existed."""
    name, *rest = path
    if name not in value:
        return False
    if not rest:
        del value[name]
        return True
    done = remove(value[name], rest)
    if done and not value[name]:
        del value[name]
    return done


def baseline(spec: dict[str, Any]) -> Iterator[str]:
    """Turn off a benchmark that compares requests with and without drafts."""
    measured = spec.get("benchmark", {})
    if measured.get("mode", "Disabled") != "Disabled" and "baseline" not in measured:
        measured["mode"] = "Disabled"
        yield (
            "spec.benchmark.mode is Disabled: no request turns drafts off, so set "
            "spec.benchmark.baseline to a second resource, of method None"
        )


def _any(names: tuple[str, ...]) -> str:
    return " or ".join(names)
