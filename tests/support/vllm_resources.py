"""Resources of backend VLLM for tests, and the files that the backend writes."""

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import yaml

from specdec import backends
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint, Facts
from specdec.backends.vllm import BACKEND
from specdec.pipeline import validation
from support.checkpoint_facts import stated
from support.simulated_cluster import FACTS, IMAGES, resource, source

Json = dict[str, Any]
# `speculative_config` by method, with the role in place of a path.
EXPECTED: dict[str, Json] = {
    "DraftTarget": {"method": "draft_model", "model": "DRAFT", "num_speculative_tokens": 5},
    "Eagle3": {"method": "eagle3", "model": "HEADS", "num_speculative_tokens": 5},
    "Eagle": {"method": "eagle", "model": "HEADS", "num_speculative_tokens": 5},
    "Medusa": {"method": "medusa", "model": "HEADS", "num_speculative_tokens": 5},
    "MTP": {"method": "mtp", "num_speculative_tokens": 5},
    "PARD": {
        "method": "draft_model",
        "model": "DRAFT",
        "num_speculative_tokens": 5,
        "parallel_drafting": True,
    },
    "DFlash": {"method": "dflash", "model": "HEADS", "num_speculative_tokens": 5},
    "SuffixAutomaton": {
        "method": "suffix",
        "num_speculative_tokens": 5,
        "suffix_decoding_max_tree_depth": 24,
        "suffix_decoding_max_cached_requests": 0,
    },
    "NGram": {
        "method": "ngram",
        "num_speculative_tokens": 5,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 4,
    },
}
BLOCKS: dict[str, Json] = {
    "DraftTarget": {"draftTarget": {"draft": {"source": source("draft")}}},
    "Eagle": {"eagle": {"checkpoint": source("heads")}},
    "Eagle3": {"eagle3": {"checkpoint": source("heads")}},
    "Medusa": {"medusa": {"heads": source("heads")}},
    "PARD": {"pard": {"draft": source("draft")}},
    "DFlash": {"dFlash": {"checkpoint": source("heads")}},
}
ROLES = {role: digit * 64 for role, digit in (("target", "a"), ("draft", "b"), ("heads", "c"))}
LIMITS = {"maxBatchSize": 16, "maxSeqLen": 512, "maxNumTokens": 8192}


def vllm(method: str, version: str = "0.27.1", frontend: str = "Triton", **spec: Any) -> Json:
    """Return a valid resource; `spec` replaces whole blocks of its spec."""
    speculation: Json = {"method": method, **deepcopy(BLOCKS.get(method, {}))}
    if method != "None":
        speculation["maxDraftTokens"] = 5
    runtime = {
        "backend": "VLLM",
        "version": version,
        "frontend": frontend,
        "image": "example.com/vllm:1",
    }
    target = {"source": source("target"), "limits": dict(LIMITS)}
    return resource(**{"runtime": runtime, "target": target, "speculation": speculation, **spec})


def put(cr: Json, path: str, value: Any) -> Json:
    """Set a field by its path below `spec`; None removes it."""
    place = cr["spec"]
    *parents, last = path.split(".")
    for name in parents:
        place = place.setdefault(name, {})
    if value is None:
        place.pop(last, None)
    else:
        place[last] = value
    return cr


def files(cr: Json, **known: Any) -> Mapping[str, str]:
    """Return the repository; the memory of the GPU is not known."""
    model = SpeculativeModel.parse(cr)
    checkpoints = {
        role: Checkpoint(role, ROLES[role], "", 1_000_000, stated(FACTS)) for role in model.sources
    }
    sized = backends.sized(model, checkpoints, 0)
    facts = Facts(version=validation.version(model), checkpoints=checkpoints, **known)
    return BACKEND.repository(sized, facts)


def arguments(cr: Json, **known: Any) -> Json:
    """Return `model.json`."""
    read: Json = json.loads(files(cr, **known)["vllm_model/1/model.json"])
    return read


def options(cr: Json, **known: Any) -> Json:
    """Return the options of vLLM's own server."""
    (text,) = files(cr, **known).values()
    read: Json = yaml.safe_load(text)
    return read


def problem(cr: Json) -> str:
    """Return the sentence of the first broken rule; empty without one."""
    cause = validation.first_problem(SpeculativeModel.parse(cr), IMAGES)
    return cause.message if cause else ""
