"""The resource of backend VLLM in place of one of backend TensorRT or PyTorch."""

from collections.abc import Iterator, Mapping
from typing import Any

from specdec.api.matrix import support
from specdec.backends import migration
from specdec.backends.migration import Body, Migration

FROM, TO = ("TensorRT", "PyTorch"), "VLLM"
_NO_ENGINE = "no engine is built"
_NO_BLS = "the server drafts by itself, without the BLS"
_DRAFT = "the draft runs in the processes of the target, and has its settings"
_POOL = "vLLM proposes from the text of each request alone"
_ACCEPTANCE = "vLLM does not stop drafting by acceptance; draftLengthByLoad follows the load"
# Fields without a meaning for backend VLLM, each with the reason.
_REMOVED = {
    "spec.build": _NO_ENGINE,
    "spec.target.engine": _NO_ENGINE,
    "spec.target.quantization.calibration": _NO_ENGINE,
    "spec.target.gpu": "the server uses the first GPUs of its pod",
    "spec.target.limits.maxInputLen": "vLLM limits a prompt with its answer, by maxSeqLen",
    "spec.target.kvCache.hostMemoryMiB": "vLLM keeps its cache on the GPU",
    "spec.runtime.batchSchedulerPolicy": (
        "vLLM starts a request early, and pauses it if the cache is full"
    ),
    "spec.speculation.draftLengthPolicy": (
        "no request can set a draft length; draftLengthByLoad lowers it under load"
    ),
    "spec.speculation.acceptanceThreshold": _ACCEPTANCE,
    "spec.speculation.acceptanceRateThreshold": _ACCEPTANCE,
    "spec.speculation.penalties": "requests may always have penalties",
    "spec.speculation.nGram.keepAll": _POOL,
    "spec.speculation.nGram.useOldest": _POOL,
    "spec.speculation.nGram.publicPool": _POOL,
    "spec.speculation.nGram.memoryMegabytes": "the server remembers no finished texts",
    "spec.speculation.eagle3.dynamicTree": "vLLM drafts chains",
    "spec.speculation.eagle3.suffixMatching": "vLLM drafts with the heads alone",
    "spec.speculation.mtp.suffixMatching": "vLLM drafts with the layers of the target alone",
    "spec.speculation.draftTarget.topology": _DRAFT,
    "spec.speculation.draftTarget.placement": _DRAFT,
    "spec.speculation.draftTarget.draftServer": _DRAFT,
    "spec.speculation.draftTarget.acceptance": "the server chooses how it accepts draft tokens",
    "spec.speculation.draftTarget.fastLogits": "the server chooses how it accepts draft tokens",
    "spec.speculation.draftTarget.draftLengthCeiling": _NO_BLS,
    "spec.speculation.draftTarget.draftAhead": _NO_BLS,
    "spec.speculation.draftTarget.rowsPerCall": _NO_BLS,
    "spec.speculation.draftTarget.lookup": "the server does not also search earlier text",
    **{
        f"spec.speculation.draftTarget.draft.{name}": _DRAFT
        for name in ("dtype", "quantization", "parallelism", "gpu", "kvCache", "limits", "engine")
    },
    "spec.serving.triton": "the server has no models for text and no queue before engines",
}
_ADAPTERS, _GRAMMARS = "enable_lora", "guided_decoding_backend"
# Arguments of the LLM API that vLLM has by the same name, with the same meaning.
_SAME = frozenset({"stream_interval"})


def migrate(body: Body) -> Migration:
    """The equivalent of a valid resource of another backend."""
    return migration.migrated(body, FROM, _needs, _apply_changes)


def _needs(spec: Mapping[str, Any]) -> Iterator[str]:
    row, method = support(TO), spec["speculation"]["method"]
    if not row.serves(method, row.default_version):
        able = [name for name in row.methods if row.serves(name, row.default_version)]
        advice = row.instead.get(method, f"one of {', '.join(able)}")
        yield (
            f"spec.speculation.method is {method}, which backend {TO} does not have: set it to "
            f"{advice}"
        )
    yield from migration.formats(spec, TO)
    yield from _requests(spec["runtime"].get("parameters", {}))
    yield from migration.sizes(spec, TO)
    for name in sorted(set(spec["runtime"].get("arguments", {})) - _SAME):
        yield (
            f"spec.runtime.arguments.{name} is an argument of TensorRT-LLM: remove it, and set "
            "one of vLLM in the migrated resource if it is needed"
        )


def _requests(parameters: Mapping[str, str]) -> Iterator[str]:
    """Parameters without which the server would answer some requests in another way."""
    field = "spec.runtime.parameters"
    if parameters.get(_ADAPTERS) == "true":
        yield (
            f"{field}.{_ADAPTERS} is true, and no request to backend {TO} can name an adapter: "
            "remove it if no client names one, or merge the adapter into the checkpoint"
        )
    if grammars := parameters.get(_GRAMMARS):
        yield (
            f"{field}.{_GRAMMARS} is {grammars}, and requests to vLLM name grammars in another "
            "way, without this parameter: remove it, and change clients that send a grammar"
        )


def _apply_changes(body: Body) -> Iterator[str]:
    """Change a resource; yields a sentence for each change."""
    spec = body["spec"]
    yield from migration.backend(spec["runtime"], TO, with_engines=FROM[0])
    yield from _runtime(spec["runtime"])
    yield from migration.lengths(spec["speculation"])
    yield from migration.removed(body, _REMOVED)
    yield from migration.open_limits(spec, TO)
    yield from migration.baseline(spec)


def _runtime(runtime: dict[str, Any]) -> Iterator[str]:
    yield from migration.frontend(runtime, TO)
    if runtime.pop("image", None):
        yield "spec.runtime.image is removed: it was an image of TensorRT-LLM"
    yield from migration.release(runtime, TO)
    parameters = runtime.pop("parameters", {})
    for name in sorted(parameters):
        yield f"spec.runtime.parameters.{name} is removed: vLLM does not have it"
