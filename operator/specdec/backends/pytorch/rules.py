"""Rules on specs of the PyTorch backend."""

from collections.abc import Iterator

from specdec.api.cause import Cause
from specdec.api.model import SpeculativeModel
from specdec.api.model_spec import EngineOptions
from specdec.backends.facts import Images
from specdec.backends.pytorch import arguments, generations, methods, prompts
from specdec.backends.rule import Rule, invalid, version


def frontend(model: SpeculativeModel, _: Images) -> Cause | None:
    """`trtllm-serve` has one port, one instance, and the OpenAI API."""
    if in_triton(model):
        return None
    for field, value, why in _only_triton(model):
        return invalid(
            f"spec.{field} is {value}, and spec.runtime.frontend is TrtllmServe, {why}, or set "
            "the front end to Triton"
        )
    return None


def in_triton(model: SpeculativeModel) -> bool:
    """Whether Triton serves the LLM API."""
    return model.spec.runtime.frontend == "Triton"


def _only_triton(model: SpeculativeModel) -> Iterator[tuple[str, str, str]]:
    """Fields that need Triton: name, value, and what to do instead."""
    runtime, serving = model.spec.runtime, model.spec.serving
    if runtime.instances > 1:
        yield (
            "runtime.instances",
            str(runtime.instances),
            "which serves one instance: set it to 1 and raise serving.replicas",
        )
    if serving.open_ai is not None:
        yield "serving.openAI", "set", "which serves the OpenAI API itself: remove it"
    if serving.tls is not None:
        yield "serving.tls", "set", "which has no gRPC port to encrypt: remove it"
    if serving.http != "Open":
        yield "serving.http", serving.http, "which serves clients over HTTP only: set it to Open"
    if not serving.streaming:
        yield "serving.streaming", "false", "where each request decides: set it to true"
    if runtime.parameters.get("enable_lora") == "true":
        yield (
            "runtime.parameters.enable_lora",
            "true",
            "whose requests would name adapters by paths in the server: remove it",
        )


def processes(model: SpeculativeModel, _: Images) -> Cause | None:
    """The model uses the first GPUs of one pod, and speculates only without pipeline stages."""
    spec = model.spec
    if spec.target.parallelism.pipeline > 1 and spec.speculation.speculates:
        return invalid(
            f"parallelism.pipeline of the target is {spec.target.parallelism.pipeline}, and "
            "backend PyTorch does not speculate in pipeline stages: set it to 1 and raise tensor"
        )
    if spec.target.gpu.device_ids:
        return invalid(
            f"gpu.deviceIds of the target is {list(spec.target.gpu.device_ids)}, and backend "
            "PyTorch uses the first GPUs of its pod: remove it, and set runtime.instances for "
            "several instances"
        )
    if spec.serving.nodes_per_replica > 1:
        return invalid(
            f"spec.serving.nodesPerReplica is {spec.serving.nodes_per_replica}, and backend "
            "PyTorch serves a replica in one pod: set it to 1"
        )
    return None


def formats(model: SpeculativeModel, _: Images) -> Cause | None:
    """Nothing is built: the weights have the format of the checkpoint."""
    own = model.spec.target
    if own.quantization.method != "None":
        return invalid(
            f"quantization.method of the target is {own.quantization.method}, and backend PyTorch "
            "serves checkpoints as they are: set it to None, and the source to a checkpoint that "
            "is already quantized"
        )
    if own.quantization.kv_cache == "INT8":
        return invalid(
            "quantization.kvCache of the target is INT8, and backend PyTorch has Auto and FP8: "
            "set it to one of them"
        )
    if own.engine != EngineOptions():
        return invalid("target.engine is set, and backend PyTorch builds no engine: remove it")
    return None


def lengths(model: SpeculativeModel, _: Images) -> Cause | None:
    """The draft length is that of the server: no request can set one."""
    speculation = model.spec.speculation
    if speculation.speculates and speculation.max_draft_tokens is None:
        return invalid(
            f"spec.speculation.method is {speculation.method}: set maxDraftTokens, the number of "
            "draft tokens of a step"
        )
    for name, value in (
        ("draftTokens", speculation.draft_tokens),
        ("draftLengthPolicy", speculation.draft_length_policy),
    ):
        if value is not None:
            return invalid(
                f"spec.speculation.{name} is set, and no request to backend PyTorch can set a "
                "draft length: remove it, and set maxDraftTokens"
            )
    own = model.spec.benchmark
    if own.mode != "Disabled" and own.baseline is None:
        return invalid(
            f"spec.benchmark.mode is {own.mode}, and no request to backend PyTorch turns drafts "
            "off: set spec.benchmark.baseline to a service without speculation, or mode to "
            "Disabled"
        )
    return None


def load(model: SpeculativeModel, _: Images) -> Cause | None:
    """A draft length by load is either a limit, or a schedule that starts with the full length."""
    speculation = model.spec.speculation
    own = speculation.draft_length_by_load
    if own is None:
        return None
    field = "spec.speculation.draftLengthByLoad"
    if (own.max_concurrency is None) == (not own.schedule):
        return invalid(f"{field} needs exactly one of maxConcurrency and schedule: set one")
    sizes = [step.batch_size for step in own.schedule]
    if sizes != sorted(set(sizes)):
        return invalid(
            f"{field}.schedule has the batch sizes {sizes}: list each once, in ascending order"
        )
    if own.schedule and own.schedule[0].draft_tokens != speculation.max_draft_tokens:
        return invalid(
            f"{field}.schedule starts with {own.schedule[0].draft_tokens} draft tokens, and "
            f"maxDraftTokens is {speculation.max_draft_tokens}: set the first step to "
            "maxDraftTokens"
        )
    return None


def generation(model: SpeculativeModel, _: Images) -> Cause | None:
    """Every field that is set exists in the generation of the version."""
    release = version(model)
    own = generations.of(release)
    if model.spec.speculation.acceptance_threshold is not None and own.acceptance_rate:
        return invalid(
            f"spec.speculation.acceptanceThreshold is set, and TensorRT-LLM {release} has a "
            "threshold of the acceptance rate in its place: set acceptanceRateThreshold, and "
            "remove acceptanceThreshold"
        )
    for field, has in _used(model):
        if not getattr(own, has):
            able = [each.since for each in generations.generations() if getattr(each, has)]
            return invalid(
                f"spec.{field} is set, and TensorRT-LLM {release} does not have it: "
                "remove it, or set runtime.version to a version that has the LLM API of "
                f"{able[-1]}"
            )
    return None


def _used(model: SpeculativeModel) -> Iterator[tuple[str, str]]:
    """Fields that are set and not in every generation, each with its flag in `Generation`."""
    speculation = model.spec.speculation
    if speculation.draft_length_by_load is not None:
        yield "speculation.draftLengthByLoad", "by_load"
    if speculation.acceptance_threshold is not None:
        yield "speculation.acceptanceThreshold", "acceptance"
    if speculation.acceptance_rate_threshold is not None:
        yield "speculation.acceptanceRateThreshold", "acceptance_rate"
    if speculation.eagle3 is not None and speculation.eagle3.dynamic_tree is not None:
        yield "speculation.eagle3.dynamicTree", "dynamic_tree"
    for name, block in (("eagle3", speculation.eagle3), ("mtp", speculation.mtp)):
        if block is not None and block.suffix_matching is not None:
            yield f"speculation.{name}.suffixMatching", "suffixes"
    if speculation.penalties:
        yield "speculation.penalties", "penalties"
    if model.spec.runtime.parameters.get("enable_lora") == "true":
        # Without the inputs the base model would answer.
        yield "runtime.parameters.enable_lora", "adapters"


def warnings(model: SpeculativeModel) -> tuple[str, ...]:
    """Warnings about a valid spec: texts that tenants share, and untested combinations."""
    speculation, texts = model.spec.speculation, []
    field = speculation.block.shared_texts_field
    if field:
        name = speculation.block_name(speculation.method)
        texts.append(
            f"speculation.{name}.{field} is true, so draft tokens come from the texts of other "
            "requests too: set it to false where several tenants use the service"
        )
    if model.spec.runtime.parameters.get("enable_lora") == "true" and speculation.speculates:
        texts.append(
            "runtime.parameters has enable_lora, and TensorRT-LLM does not test adapters together "
            "with speculation: compare outputs with a resource of method None"
        )
    return (*texts, *methods.of(model).warnings(model))


RULES: tuple[Rule, ...] = (
    frontend,
    processes,
    formats,
    prompts.steps,
    arguments.grammars,
    arguments.checked,
    lengths,
    load,
    generation,
)
