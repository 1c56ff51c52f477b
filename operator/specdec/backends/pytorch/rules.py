"""Rules on specs of the PyTorch backend."""

from collections.abc import Iterator

from specdec import servers
from specdec.api.cause import Cause
from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Images
from specdec.backends.pytorch import arguments, configuration, generations, methods, prompts
from specdec.backends.rule import Rule, invalid, version


def in_triton(model: SpeculativeModel) -> bool:
    """Whether Triton serves the LLM API."""
    return servers.of(model).serving.tritonserver


def lengths(model: SpeculativeModel, _: Images) -> Cause | None:
    """A method that speculates has a draft length."""
    speculation = model.spec.speculation
    if not speculation.speculates or speculation.max_draft_tokens is not None:
        return None
    return invalid(
        f"spec.speculation.method is {speculation.method}: set maxDraftTokens, the number of "
        "draft tokens of a step"
    )


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
    if configuration.has_adapters(model.spec.runtime.parameters):
        # Without the inputs the base model would answer.
        yield f"runtime.parameters.{configuration.ADAPTERS}", "adapters"


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
    if configuration.has_adapters(model.spec.runtime.parameters) and speculation.speculates:
        texts.append(
            "runtime.parameters has enable_lora, and TensorRT-LLM does not test adapters together "
            "with speculation: compare outputs with a resource of method None"
        )
    return (*texts, *methods.of(model).warnings(model))


RULES: tuple[Rule, ...] = (
    prompts.steps,
    arguments.grammars,
    arguments.checked,
    lengths,
    load,
    generation,
)
