"""The commands of all builds that a release can do, for a check without a resource."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorrt_plan
from failure import BuildError
from tensorrt_steps import MissingScriptError, steps

_BLOCKS: dict[str, dict[str, Any]] = {
    "none": {},
    "draft_tokens_external": {"maxDraftTokens": 1},
    "eagle": {"eagle": {"numLayers": 4, "maxNonLeavesPerLayer": 10}},
    "medusa": {"medusa": {"numHeads": 4, "numLayers": 1}},
    "explicit_draft_tokens": {
        "reDrafter": {"numBeams": 5, "draftLenPerBeam": 5, "greedySearch": False}
    },
    "lookahead_decoding": {
        "lookahead": {"windowSize": 7, "ngramSize": 7, "verificationSetSize": 7}
    },
}
_HEADS = ("eagle", "medusa", "explicit_draft_tokens")
_ARCHITECTURES = ("LlamaForCausalLM", "Qwen2ForCausalLM")
_FORMATS = ("None", "FP8", "INT8SQ", "INT4AWQ", "W4A8AWQ", "NVFP4")
_CACHES = ("Auto", "FP8", "INT8")


def commands(version: str, folders: list[str]) -> tuple[list[tuple[str, ...]], list[str]]:
    """The commands for all methods and number formats, and a clause for each missing script."""
    planned: dict[tuple[str, ...], None] = {}
    missing: dict[str, None] = {}
    for mode, architecture, weights, cache in itertools.product(
        _BLOCKS, _ARCHITECTURES, _FORMATS, _CACHES
    ):
        try:
            plan = tensorrt_plan.read(_plan(version, folders, mode, weights, cache))
            config = {"architectures": [architecture]}
            for step in steps(plan, config, Path("/work"), Path.is_file):
                planned[step.command(Path("/work") / step.name)] = None
        except MissingScriptError as error:
            missing[error.clause] = None
        except BuildError:  # a combination that no build does
            continue
    return list(planned), list(missing)


def _plan(version: str, folders: list[str], mode: str, weights: str, cache: str) -> dict[str, Any]:
    data = {"dataset": "/data", "samples": 1}
    limits = ("maxBatchSize", "maxInputLen", "maxSeqLen", "maxNumTokens")
    return {
        "checkpoint": "/checkpoint",
        "heads": "/heads" if mode in _HEADS else None,
        "output": "/work/engine",
        "examples": folders,
        "key": "sample",
        "version": version,
        "speculativeDecodingMode": mode,
        "quantization": {"method": weights, "kvCache": cache, "calibration": data},
        "limits": dict.fromkeys(limits, 1),
        "engine": dict(_engine(weights, cache)),
        **_BLOCKS[mode],
    }


def _engine(weights: str, cache: str) -> Iterator[tuple[str, Any]]:
    fp8 = weights in ("FP8", "W4A8AWQ", "NVFP4")
    paged = cache == "Auto" or (cache == "FP8" and fp8)
    yield "pagedContextFmha", paged
    yield "fp8ContextFmha", fp8 and cache == "FP8"
    yield "gatherGenerationLogits", True
    yield "plugins", {"gemm": "auto", "gptAttention": "auto", "lowLatencyGemm": "fp8"}
