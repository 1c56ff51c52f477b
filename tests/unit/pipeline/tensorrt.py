"""Resources of the TensorRT backend for tests, and the engines and plans of the backend."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from specdec import backends
from specdec.api.model import SpeculativeModel
from specdec.backends import repository
from specdec.backends.facts import Checkpoint, Engine, Facts
from specdec.backends.tensorrt import BACKEND
from specdec.pipeline import validation
from specdec.triton.repository import RepositoryPlan, render
from support.checkpoint_facts import stated
from support.simulated_cluster import FACTS, IMAGES, limits, resource, source

Json = dict[str, Any]
BLOCKS: dict[str, Json] = {
    "None": {},
    "DraftTarget": {
        "maxDraftTokens": 8,
        "draftTokens": 4,
        "draftTarget": {"draft": {"source": source("draft"), "limits": limits()}},
    },
    "Eagle": {"maxDraftTokens": 63, "eagle": {"checkpoint": source("heads")}},
    "Medusa": {"maxDraftTokens": 63, "medusa": {"heads": source("heads")}},
    "ReDrafter": {"reDrafter": {"checkpoint": source("heads")}},
    "Lookahead": {"lookahead": {"windowSize": 7, "ngramSize": 7, "verificationSetSize": 7}},
}


def tensorrt(method: str = "DraftTarget", version: str = "0.19.0", **spec: Any) -> Json:
    """Return a valid resource; `spec` replaces whole blocks of its spec."""
    cr = resource(**spec)
    runtime = {"backend": "TensorRT", "version": version, **spec.get("runtime", {})}
    speculation = spec.get("speculation", {"method": method, **deepcopy(BLOCKS[method])})
    gpu = spec.get("gpu", {"product": "NVIDIA-H100-80GB-HBM3"})
    cr["spec"] |= {"runtime": runtime, "speculation": speculation, "gpu": gpu}
    return cr


def put(cr: Json, path: str, value: Any) -> Json:
    """Set a field of the spec, by its path; return the resource."""
    place = cr["spec"]
    *parents, last = path.split(".")
    for name in parents:
        place = place.setdefault(name, {})
    place[last] = value
    return cr


def facts(model: SpeculativeModel, **known: Any) -> Facts:
    """Return the facts that the stages before `engines` return."""
    version = validation.version(model)
    runtime = model.spec.runtime
    image = runtime.image or backends.default_image(model, IMAGES, version)
    checkpoints = {
        role: Checkpoint(role, letter * 64, "", 0, stated(FACTS))
        for role, letter in zip(model.sources, "abcde", strict=False)
    }
    return Facts(**{"version": version, "image": image, "checkpoints": checkpoints, **known})


def engines(cr: Json, **known: Any) -> dict[str, Engine]:
    """Return the engine of each model by role."""
    model = SpeculativeModel.parse(cr)
    return built(model, facts(model, **known))


def built(model: SpeculativeModel, given: Facts) -> dict[str, Engine]:
    """Return the engines of a resource of any backend that builds some, by role."""
    builder = backends.of(model).builder
    assert builder is not None
    return {engine.role: engine for engine in builder.engines(model, given)}


def plans(cr: Json, **known: Any) -> dict[str, RepositoryPlan]:
    """Return the repository plan of each server by folder."""
    model = SpeculativeModel.parse(cr)
    given = facts(model, engines=engines(cr), **known)
    return repository.plans(model, given, BACKEND.servers(model), full_calls=False)


def parameters(
    made: RepositoryPlan | Mapping[str, str], model: str = "tensorrt_llm"
) -> dict[str, str]:
    """Return the parameters of a model's `config.pbtxt`, from a plan or its files."""
    files = render(made) if isinstance(made, RepositoryPlan) else made
    lines = files[f"{model}/config.pbtxt"].splitlines()
    keys = [line.split('"')[1] for line in lines if line.startswith("  key: ")]
    values = [line.split('"')[1] for line in lines if "string_value" in line]
    return dict(zip(keys, values, strict=True))
