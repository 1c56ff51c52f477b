"""What specdec expects of the server image of a TensorRT-LLM version, as data for the image check.

The check itself runs in a build Job, inside the image (`images/build/image_check.py`). Its input
depends only on that version, because resources that share an engine share the ConfigMap of its
build.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from specdec.api.matrix import support
from specdec.triton import contract, options
from specdec.triton.contract import Tensor
from specdec.triton.model_names import TARGET
from specdec.triton.parameters import published
from specdec.triton.plan import ModelPlan, RepositoryPlan

_NAME = "TensorRT"
# Keys that a method sets for its target's engine, by the method's mode in `trtllm-build`.
MODES = {
    "eagle": ("decoding_mode", "eagle_choices"),
    "medusa": ("decoding_mode", "medusa_choices"),
    "explicit_draft_tokens": ("decoding_mode",),
    "lookahead_decoding": (
        "decoding_mode",
        "lookahead_window_size",
        "lookahead_ngram_size",
        "lookahead_verification_set_size",
    ),
}


def releases() -> tuple[str, ...]:
    """Releases that an image can be compared with; the last one is the default."""
    row = support(_NAME)
    return (*(v for v in row.versions if v != row.default_version), row.default_version)


@cache
def expectations(version: str) -> dict[str, Any]:
    """Version, folders, and for each published model its tensors and parameters, as JSON.

    A tensor has several names where images spell it differently. `known` are the keys of
    parameters that this release can write. An image must read those in `needed` for every method,
    and those of a mode in `modes` only for the method of that mode.
    """
    row = support(_NAME)
    older, newer = contract.spellings()
    return {
        "version": version,
        "image": row.images[version],
        "served": list(row.versions),
        "examples": [folders.examples for folders in row.folders],
        "templates": [folders.templates for folders in row.folders],
        # A build names its programs, and the servers of engines import no TensorRT-LLM.
        "programs": [],
        "modules": [],
        "requestFields": {
            "minTokens": [older.min_tokens, newer.min_tokens],
            "seed": [older.seed, newer.seed],
        },
        "models": _models(version),
    }


def _models(version: str) -> dict[str, Any]:
    """The tensors of each published model, and the keys of its parameters.

    Of the image's models, servers run only the engine's. specdec publishes all other models
    itself.
    """
    older, newer = contract.spellings()
    engine = ModelPlan("engine", (0,), (), max_tokens_in_paged_kv_cache=1, kv_cache_fraction="0.9")
    written = published(RepositoryPlan(version, "tokenizer", engine))
    models: dict[str, dict[str, Any]] = {
        model: {
            "inputs": _tensors(
                contract.inputs(model, version, fields=older),
                contract.inputs(model, version, fields=newer),
            ),
            "outputs": _tensors(
                [output for output in contract.outputs(model, version) if not output.added]
            ),
            "known": [key for key, _ in parameters],
            "needed": [],
            "modes": {},
        }
        for model, parameters in written.items()
    }
    known = dict.fromkeys((*models[TARGET]["known"], *options.free(version)))
    models[TARGET] |= {
        "known": list(known),
        # The keys that every image must read have a value here.
        "needed": [key for key, value in written[TARGET] if value],
        "modes": {mode: list(keys) for mode, keys in MODES.items() if set(keys) <= set(known)},
    }
    return models


def _tensors(*spellings: Sequence[Tensor]) -> list[dict[str, Any]]:
    return [
        {"names": list(dict.fromkeys(t.name for t in same)), "type": same[0].data_type}
        for same in zip(*spellings, strict=True)
    ]
