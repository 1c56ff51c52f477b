"""Whether EAGLE, Medusa or ReDrafter heads fit their target and the block that names them."""

from collections.abc import Iterator, Mapping

from specdec.api.matrix import at_least, support
from specdec.api.model import Backend, Method, SpeculativeModel
from specdec.api.speculation import Speculation
from specdec.validation.finding import Facts, Finding

# Before, the ReDrafter converter read its base model itself, and Llamas alone.
_ANY_BASE, _LLAMA = "1.0.0", "LlamaForCausalLM"
_METHODS = (Method.EAGLE, Method.MEDUSA, Method.RE_DRAFTER)


def judge(model: SpeculativeModel, facts: Mapping[str, Facts]) -> Iterator[Finding]:
    """What does not fit between heads, target and the method's block."""
    speculation = model.spec.speculation
    method = speculation.method
    if method not in _METHODS or not {"target", "heads"} <= facts.keys():
        return
    target, heads = facts["target"], facts["heads"]
    architecture = target.get("architecture")
    able = _architectures(model)
    if architecture is not None and architecture not in able:
        yield _finding(
            "TargetArchitectureMismatch",
            f"method {method} builds heads on {', '.join(able)} and the "
            f"target is {architecture}: choose another target, or method DraftTarget",
        )
    made_for = heads.get("method")
    if made_for is not None and made_for != method:
        yield _finding(
            "HeadsMethodMismatch",
            f"the heads are made for {made_for} and spec.speculation.method is {method}: choose "
            f"heads made for {method}, or another method",
        )
        return
    yield from _sizes(target, heads)
    yield from _numbers(speculation, heads)


def _architectures(model: SpeculativeModel) -> tuple[str, ...]:
    """Targets that the release's converter of heads takes."""
    row = support(Backend.TENSORRT)
    able = row.method_architectures[model.spec.speculation.method]
    version = model.spec.runtime.version or row.default_version
    if model.spec.speculation.method is Method.RE_DRAFTER and not at_least(version, _ANY_BASE):
        return tuple(name for name in able if name == _LLAMA)
    return able


def _sizes(target: Facts, heads: Facts) -> Iterator[Finding]:
    for code, name, key in (
        ("HeadsHiddenSizeMismatch", "hidden size", "hiddenSize"),
        ("HeadsVocabSizeMismatch", "vocabulary size", "vocabSize"),
    ):
        values = target.get(key), heads.get(key)
        if None not in values and values[0] != values[1]:
            yield _finding(
                code,
                f"the heads have {name} {values[1]} and the target {values[0]}: choose heads "
                "trained on this target",
            )


def _numbers(speculation: Speculation, heads: Facts) -> Iterator[Finding]:
    """Numbers of heads and layers, against the block or what the method can build."""
    layers, count = heads.get("layers"), heads.get("numHeads")
    if speculation.method is Method.EAGLE and layers not in (None, 1):
        yield _finding(
            "HeadsLayersMismatch",
            f"the EAGLE heads have {layers} decoder layers and EAGLE-1 has one: choose EAGLE-1 "
            "heads (eagle.numLayers is the number of draft steps, not of layers)",
        )
    medusa = speculation.medusa
    if medusa is None:
        return
    if count is not None and medusa.num_heads > count:
        yield _finding(
            "HeadsCountMismatch",
            f"medusa.numHeads is {medusa.num_heads} and the checkpoint has {count} heads: set "
            f"medusa.numHeads to {count} or less",
        )
    if layers is not None and medusa.num_layers != layers:
        yield _finding(
            "HeadsLayersMismatch",
            f"medusa.numLayers is {medusa.num_layers} and the heads have {layers} layers each: "
            f"set medusa.numLayers to {layers}",
        )


def _finding(code: str, message: str) -> Finding:
    return Finding(code, message, "heads", "heads")
