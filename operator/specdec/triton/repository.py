"""Render the files of a Triton model repository from a plan; equal plans give equal bytes.

All files are text, except the library of the BLS. `libraries` returns the library's path, and the
publish Job copies the library to that path.
"""

from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable

from specdec.api.versions import at_least
from specdec.triton import contract, library, pbtxt
from specdec.triton.model_names import (
    BLS,
    DRAFT,
    ENSEMBLE,
    POSTPROCESSING,
    PREPROCESSING,
    TARGET,
)
from specdec.triton.parameters import bls_parameters, engine_parameters, text_parameters
from specdec.triton.pbtxt import Batching, ModelConfig
from specdec.triton.plan import ModelPlan, PlanError, RepositoryPlan

__all__ = [
    "ModelPlan",
    "PlanError",
    "RepositoryPlan",
    "libraries",
    "render",
]

# The Python models share their tokenizer module: one source, two copies.
_SHARED = {
    "specdec_longest.py": (PREPROCESSING, POSTPROCESSING),
    "specdec_text.py": (PREPROCESSING, POSTPROCESSING),
}
# The program that the library runs if a checkpoint has no tokenizer.json.
_HELPER = "tokenizer_json.py"


def render(plan: RepositoryPlan) -> dict[str, str]:
    """Every file of the layout of TensorRT-LLM's models for engines: path -> text.

    Raises:
        ValueError: a string of the plan cannot be written as text.
    """
    files = {f"{ENSEMBLE}/config.pbtxt": _ensemble(plan)}
    for config in _models(plan):
        files[f"{config.name}/config.pbtxt"] = pbtxt.model(config)
    # Triton wants a version directory even where the backend needs no file in it.
    files |= {f"{name}/1/.keep": "" for name in (ENSEMBLE, BLS, *_engines(plan))}
    files |= dict(_sources())
    if plan.library:
        files[f"{BLS}/{library.SOURCE}"] = f"{plan.library}\n"
    return dict(sorted(files.items()))


def libraries(files: Mapping[str, str]) -> dict[str, str]:
    """The path of each library in a repository of these files -> the digest of its sources."""
    return {
        f"{path.removesuffix(library.SOURCE)}{library.FILE}": text.strip()
        for path, text in files.items()
        if path.rpartition("/")[2] == library.SOURCE
    }


def _engines(plan: RepositoryPlan) -> dict[str, ModelPlan]:
    engines = {TARGET: plan.target}
    if plan.draft:
        engines[DRAFT] = plan.draft
    return engines


def _ensemble(plan: RepositoryPlan) -> str:
    return pbtxt.ensemble(
        ENSEMBLE,
        plan.max_batch_size,
        contract.inputs(ENSEMBLE, plan.version, plan.logits_datatype, plan.request_fields),
        contract.outputs(ENSEMBLE, plan.version, plan.logits_datatype),
        contract.steps(plan.version, plan.request_fields),
    )


def _models(plan: RepositoryPlan) -> Iterator[ModelConfig]:
    newer = at_least(plan.version, "0.19.0")
    yield _config(
        plan,
        PREPROCESSING,
        text_parameters(PREPROCESSING, plan),
        batching=Batching(plan.max_batch_size) if newer else Batching(),
        instances=plan.preprocessing_instances,
    )
    yield _config(
        plan,
        POSTPROCESSING,
        text_parameters(POSTPROCESSING, plan),
        batching=Batching(),
        instances=plan.postprocessing_instances,
    )
    for name, engine in _engines(plan).items():
        yield _config(
            plan,
            name,
            engine_parameters(engine, plan, is_target=name == TARGET),
            backend="tensorrtllm",
            batching=Batching(plan.max_batch_size, plan.engine_queue_delay_us),
            decoupled=plan.decoupled,
        )
    yield _config(
        plan,
        BLS,
        bls_parameters(plan, TARGET, DRAFT),
        backend=library.BACKEND,
        # The BLS accepts requests at once, so a bound of the queue delays none (see Batching).
        batching=Batching(max_queue_size=plan.max_queue_size),
        decoupled=plan.decoupled,
    )


def _config(
    plan: RepositoryPlan,
    name: str,
    parameters: tuple[tuple[str, str], ...],
    *,
    batching: Batching,
    backend: str = "python",
    decoupled: bool | None = None,
    instances: int = 1,
) -> ModelConfig:
    return ModelConfig(
        name=name,
        backend=backend,
        max_batch_size=plan.max_batch_size,
        inputs=_inputs(plan, name),
        outputs=contract.outputs(name, plan.version, plan.logits_datatype),
        parameters=parameters,
        decoupled=decoupled,
        batching=batching,
        instances=instances,
    )


def _inputs(plan: RepositoryPlan, name: str) -> tuple[contract.Tensor, ...]:
    """The inputs of the contract, and for the BLS those that no published model has.

    The lookup scope is an input only if lookups keep texts of requests.
    """
    inputs = contract.inputs(name, plan.version, plan.logits_datatype, plan.request_fields)
    if name != BLS:
        return inputs
    scope = (contract.LOOKUP_SCOPE,) if plan.lookup_memory_megabytes > 0 else ()
    return (*inputs, contract.STOP, *scope)


def _sources() -> Iterator[tuple[str, str]]:
    payload = resources.files("specdec").joinpath("images", "models")
    for model in (PREPROCESSING, POSTPROCESSING):
        yield from _python_files(payload.joinpath(model, "1"), f"{model}/1")
    for name, models in _SHARED.items():
        text = payload.joinpath("shared", name).read_text("utf-8")
        for model in models:
            yield f"{model}/1/{name}", text
    yield f"{BLS}/{_HELPER}", (library.folder() / _HELPER).read_text("utf-8")


def _python_files(folder: Traversable, path: str) -> Iterator[tuple[str, str]]:
    for entry in folder.iterdir():
        if entry.is_file() and entry.name.endswith(".py"):
            yield f"{path}/{entry.name}", entry.read_text("utf-8")
        elif entry.is_dir() and not entry.name.startswith("__"):
            yield from _python_files(entry, f"{path}/{entry.name}")
