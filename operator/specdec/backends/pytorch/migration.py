"""The resource of backend PyTorch in place of one of backend TensorRT.

TensorRT-LLM removed its engines after 1.2, and serves checkpoints by its LLM API instead. A field
that only engines or the BLS have is removed. A field that decides what is served, and has no
equivalent, is reported instead: only the user can replace it.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from specdec.api.matrix import support
from specdec.api.model import Limits
from specdec.backends.pytorch import arguments, configuration, generations

Body = dict[str, Any]
FROM, TO = "TensorRT", "PyTorch"
_IDENTITY = ("name", "namespace", "labels", "annotations")
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_NO_ENGINE = "no engine is built"
_NO_BLS = "the server drafts by itself, without the BLS"
_SHARED = "the draft runs in the processes of the target"
# Fields without a meaning for backend PyTorch, each with the reason.
_REMOVED = {
    "spec.build": _NO_ENGINE,
    "spec.target.engine": _NO_ENGINE,
    "spec.target.quantization.calibration": _NO_ENGINE,
    "spec.target.gpu": "the server uses the first GPUs of its pod",
    "spec.speculation.draftLengthPolicy": (
        "no request can set a draft length; from 1.3 on, draftLengthByLoad lowers it under load"
    ),
    "spec.speculation.nGram.minMatch": "the server searches n-grams up to maxMatchingSize",
    "spec.speculation.nGram.memoryMegabytes": "the server remembers no finished texts",
    "spec.speculation.draftTarget.topology": _SHARED,
    "spec.speculation.draftTarget.placement": _SHARED,
    "spec.speculation.draftTarget.draftServer": _SHARED,
    "spec.speculation.draftTarget.acceptance": "the server chooses how it accepts draft tokens",
    "spec.speculation.draftTarget.fastLogits": "the server chooses how it accepts draft tokens",
    "spec.speculation.draftTarget.draftLengthCeiling": _NO_BLS,
    "spec.speculation.draftTarget.draftAhead": _NO_BLS,
    "spec.speculation.draftTarget.rowsPerCall": _NO_BLS,
    "spec.speculation.draftTarget.lookup": "the server does not also search earlier text",
    "spec.speculation.draftTarget.draft.dtype": "the draft's checkpoint decides",
    "spec.speculation.draftTarget.draft.quantization": "the draft's checkpoint decides",
    "spec.speculation.draftTarget.draft.parallelism": _SHARED,
    "spec.speculation.draftTarget.draft.gpu": _SHARED,
    "spec.speculation.draftTarget.draft.kvCache": _SHARED,
    "spec.speculation.draftTarget.draft.engine": _NO_ENGINE,
    "spec.serving.triton": "the server has no models for text and no queue before engines",
}


@dataclass(frozen=True)
class Migration:
    """The result of a migration.

    Attributes:
        body: the equivalent resource; None if there is a need.
        changes: one sentence for each field that differs.
        needs: one sentence for each field that has no equivalent, with what to set instead.
    """

    body: Body | None
    changes: tuple[str, ...]
    needs: tuple[str, ...]


def migrate(body: Body) -> Migration:
    """The equivalent of a valid resource of backend TensorRT."""
    spec = body["spec"]
    if needs := tuple(_needs(spec)):
        return Migration(None, (), needs)
    migrated = copy.deepcopy({**body, "metadata": _identity(body["metadata"])})
    migrated.pop("status", None)
    changes = tuple(_apply_changes(migrated))
    return Migration(migrated, changes, ())


def _identity(metadata: Mapping[str, Any]) -> Body:
    """The metadata that a user writes, without what the API server and kubectl add."""
    kept = {name: metadata[name] for name in _IDENTITY if name in metadata}
    notes = kept.get("annotations") or {}
    if _APPLIED in notes:
        kept["annotations"] = {name: text for name, text in notes.items() if name != _APPLIED}
    return {name: value for name, value in kept.items() if value}


def _needs(spec: Mapping[str, Any]) -> Iterator[str]:
    backend = spec["runtime"]["backend"]
    if not support(backend).replacements:
        yield f"spec.runtime.backend is {backend}: give a resource of backend {FROM}"
        return
    speculation, target = spec["speculation"], spec["target"]
    method = speculation["method"]
    if method in support(TO).instead:
        yield (
            f"spec.speculation.method is {method}, which needs an engine: set it to "
            f"{support(TO).instead[method]}"
        )
    models = {"spec.target": target}
    if "draftTarget" in speculation:
        models["spec.speculation.draftTarget.draft"] = speculation["draftTarget"]["draft"]
    for path, model in models.items():
        yield from _formats(path, model)
    yield from _requests(spec["runtime"].get("parameters", {}))
    stages = target.get("parallelism", {}).get("pipeline", 1)
    if stages > 1 and method != "None":
        yield (
            f"spec.target.parallelism.pipeline is {stages}, and backend {TO} does not speculate "
            "in pipeline stages: set it to 1 and raise tensor"
        )
    nodes = spec.get("serving", {}).get("nodesPerReplica", 1)
    if nodes > 1:
        yield (
            f"spec.serving.nodesPerReplica is {nodes}, and backend {TO} serves a replica in one "
            "pod: set it to 1, and choose parallelism or a quantized checkpoint that fits one node"
        )


def _requests(parameters: Mapping[str, str]) -> Iterator[str]:
    """Parameters without which the server would answer some requests in another way."""
    field = "spec.runtime.parameters"
    if configuration.has_adapters(parameters):
        first = next(each.since for each in generations.generations() if each.adapters)
        yield (
            f"{field}.{configuration.ADAPTERS} is true, and backend {TO} serves adapters from "
            f"TensorRT-LLM {first} on: remove it; to keep adapters, add it to the migrated "
            f"resource together with runtime.version {first}"
        )
    if grammars := parameters.get(arguments.GRAMMARS):
        yield (
            f"{field}.{arguments.GRAMMARS} is {grammars}, and no request to backend {TO} can name "
            "a grammar: remove it if no client sends one"
        )


def _formats(path: str, model: Mapping[str, Any]) -> Iterator[str]:
    quantization = model.get("quantization", {})
    method = quantization.get("method", "None")
    if method != "None":
        yield (
            f"{path}.quantization.method is {method}, and backend {TO} serves checkpoints as they "
            f"are: set {path}.source to a checkpoint that is already quantized, and method to None"
        )
    if path != "spec.target":
        return
    if quantization.get("kvCache") == "INT8":
        yield f"{path}.quantization.kvCache is INT8: set it to FP8 or Auto"
    if (dtype := model.get("dtype", "Auto")) not in support(TO).dtypes:
        yield f"{path}.dtype is {dtype}: set it to one of {', '.join(support(TO).dtypes)}"


def _apply_changes(body: Body) -> Iterator[str]:
    """Change a resource; yields a sentence for each change."""
    spec = body["spec"]
    spec["runtime"]["backend"] = TO
    yield f"spec.runtime.backend is {TO}: engines on the volume are not used"
    given = spec["target"].get("limits", {})
    if left := [name for name in Limits().model_dump(by_alias=True) if name not in given]:
        yield (
            f"spec.target.limits leaves {', '.join(left)} open: {TO} computes them from the "
            "checkpoint and the memory of the GPU"
        )
    yield from _runtime(spec["runtime"])
    yield from _lengths(spec["speculation"])
    for path, why in _REMOVED.items():
        if _remove(body, path.split(".")):
            yield f"{path} is removed: {why}"
    measured = spec.get("benchmark", {})
    if measured.get("mode", "Disabled") != "Disabled" and "baseline" not in measured:
        measured["mode"] = "Disabled"
        yield (
            "spec.benchmark.mode is Disabled: no request turns drafts off, so set "
            "spec.benchmark.baseline to a second resource, of method None"
        )


def _runtime(runtime: dict[str, Any]) -> Iterator[str]:
    release, known = runtime.get("version"), support(TO).versions
    if release is not None and release not in known:
        del runtime["version"]
        yield (
            f"spec.runtime.version {release} is removed: backend {TO} has {', '.join(known)}, and "
            f"{support(TO).default_version} by default"
        )
        if runtime.pop("image", None):
            yield "spec.runtime.image is removed: it was the image of that version"
    elif "image" in runtime:
        yield (
            "spec.runtime.image stays: check that the image has the model of the LLM API in "
            "/app/all_models/llmapi"
        )
    parameters = runtime.get("parameters", {})
    for name in sorted(parameters):
        del parameters[name]
        yield f"spec.runtime.parameters.{name} is removed: only models that run engines have it"


def _lengths(speculation: dict[str, Any]) -> Iterator[str]:
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


def _remove(value: dict[str, Any], path: list[str]) -> bool:
    """Remove a field, and objects that are empty then; returns whether the field existed."""
    name, *rest = path
    if name not in value:
        return False
    if not rest:
        del value[name]
        return True
    removed = _remove(value[name], rest)
    if removed and not value[name]:
        del value[name]
    return removed
