"""The resource of backend PyTorch in place of one of backend TensorRT or VLLM.

TensorRT-LLM removed its engines after 1.2, and serves checkpoints by its LLM API instead.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from specdec.api.matrix import support
from specdec.backends import migration
from specdec.backends.migration import Body, Migration
from specdec.backends.pytorch import arguments, configuration, generations

FROM, TO = ("TensorRT", "VLLM"), "PyTorch"
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


def migrate(body: Body) -> Migration:
    """The equivalent of a valid resource of another backend."""
    return migration.migrated(body, FROM, _needs, _apply_changes)


def _needs(spec: Mapping[str, Any]) -> Iterator[str]:
    method = spec["speculation"]["method"]
    if method in support(TO).instead:
        yield (
            f"spec.speculation.method is {method}, which needs an engine: set it to "
            f"{support(TO).instead[method]}"
        )
    elif method not in support(TO).methods:
        yield (
            f"spec.speculation.method is {method}, which backend {TO} does not have: set it to "
            f"one of {', '.join(support(TO).methods)}"
        )
    yield from migration.formats(spec, TO)
    yield from _requests(spec["runtime"].get("parameters", {}))
    yield from migration.sizes(spec, TO)
    for name in sorted(spec["runtime"].get("arguments", {})):
        yield (
            f"spec.runtime.arguments.{name} is an argument of vLLM: remove it, and set one of "
            "TensorRT-LLM's LLM API in the migrated resource if it is needed"
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


def _apply_changes(body: Body) -> Iterator[str]:
    """Change a resource; yields a sentence for each change."""
    spec = body["spec"]
    yield from migration.backend(spec["runtime"], TO, with_engines=FROM[0])
    yield from migration.open_limits(spec, TO)
    yield from _runtime(spec["runtime"])
    yield from migration.lengths(spec["speculation"])
    yield from migration.removed(body, _REMOVED)
    yield from migration.baseline(spec)


def _runtime(runtime: dict[str, Any]) -> Iterator[str]:
    yield from migration.frontend(runtime, TO)
    own = runtime.get("version") is None or runtime["version"] in support(TO).versions
    yield from migration.release(runtime, TO)
    if own and "image" in runtime:
        yield (
            "spec.runtime.image stays: check that the image has the model of the LLM API in "
            "/app/all_models/llmapi"
        )
    parameters = runtime.get("parameters", {})
    for name in sorted(parameters):
        del parameters[name]
        yield f"spec.runtime.parameters.{name} is removed: only models that run engines have it"
