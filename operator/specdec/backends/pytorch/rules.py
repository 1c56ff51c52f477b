"""Rules on specs of the PyTorch backend."""

from collections.abc import Iterator

from specdec import servers
from specdec.api.cause import Cause
from specdec.api.model import SpeculativeModel
from specdec.backends import draft_lengths, shared_texts
from specdec.backends.facts import Images
from specdec.backends.pytorch import arguments, configuration, generations, methods, prompts
from specdec.backends.rule import Rule, invalid, version


def in_triton(model: SpeculativeModel) -> bool:
    """Whether Triton serves the LLM API."""
    return servers.of(model).serving.tritonserver


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
    texts = [*shared_texts.warnings(model)]
    adapters = configuration.has_adapters(model.spec.runtime.parameters)
    if adapters and model.spec.speculation.speculates:
        texts.append(
            "runtime.parameters has enable_lora, and TensorRT-LLM does not test adapters together "
            "with speculation: compare outputs with a resource of method None"
        )
    return (*texts, *methods.of(model).warnings(model))


RULES: tuple[Rule, ...] = (
    prompts.steps,
    arguments.grammars,
    arguments.checked,
    draft_lengths.required,
    draft_lengths.by_load,
    generation,
)
