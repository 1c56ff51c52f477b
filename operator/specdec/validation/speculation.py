"""Rules on `spec.speculation`."""

from specdec import backends
from specdec.api.cause import Cause
from specdec.api.matrix import at_least
from specdec.api.model import Method, SpeculativeModel
from specdec.backends.facts import Images
from specdec.validation import tree
from specdec.validation.rule import invalid, version

# Before, one converter read base model and drafter, in plain precision.
_QUANTIZED_REDRAFTER = "1.0.0"
# Each method's block in the spec; None has no block.
_BLOCKS = {
    Method.DRAFT_TARGET: "draftTarget",
    Method.EAGLE: "eagle",
    Method.MEDUSA: "medusa",
    Method.RE_DRAFTER: "reDrafter",
    Method.LOOKAHEAD: "lookahead",
}


def blocks(model: SpeculativeModel, _: Images) -> Cause | None:
    """The block of the method is there, and no other."""
    speculation = model.spec.speculation
    given = speculation.model_dump(by_alias=True, exclude_none=True)
    for method, block in _BLOCKS.items():
        if block in given and speculation.method is not method:
            return invalid(
                f"spec.speculation.{block} is set and method is {speculation.method}: remove the "
                f"block, or set method to {method}"
            )
    wanted = _BLOCKS.get(speculation.method)
    optional = speculation.method is Method.LOOKAHEAD
    if wanted is None or optional or wanted in given:
        return None
    if speculation.method is Method.DRAFT_TARGET:
        return invalid(
            "spec.speculation.method is DraftTarget: set draftTarget.draft and maxDraftTokens"
        )
    return invalid(f"spec.speculation.method is {speculation.method}: set the block {wanted}")


def lengths(model: SpeculativeModel, _: Images) -> Cause | None:
    """draftTokens <= draftLengthCeiling <= maxDraftTokens."""
    speculation = model.spec.speculation
    most = speculation.max_draft_tokens
    if speculation.method not in (Method.DRAFT_TARGET, Method.EAGLE, Method.MEDUSA):
        return None
    if most is None:
        return invalid(
            f"spec.speculation.method is {speculation.method}: set maxDraftTokens, the number of "
            "draft tokens that the target's engine is built for"
        )
    ceiling = backends.draft_ceiling(model)
    if ceiling > most:
        return invalid(
            f"spec.speculation.draftTarget.draftLengthCeiling is {ceiling}, above maxDraftTokens "
            f"{most}: lower it or raise maxDraftTokens"
        )
    drafted = backends.draft_tokens(model)
    if drafted > ceiling:
        name = "maxDraftTokens" if ceiling == most else "draftTarget.draftLengthCeiling"
        return invalid(
            f"spec.speculation.draftTokens is {drafted}, above {name} {ceiling}: lower "
            f"draftTokens or raise {name}"
        )
    return None


def choices(model: SpeculativeModel, _: Images) -> Cause | None:
    """A tree of draft tokens fits the heads."""
    speculation = model.spec.speculation
    nodes = speculation.max_draft_tokens or 0
    if speculation.eagle:
        heads = speculation.eagle
        built = tree.Ceilings(heads.num_layers, nodes, heads.max_non_leaves_per_layer, exact=True)
        field, wrong = "eagle", tree.problem(heads.choices, built)
    elif speculation.medusa:
        built = tree.Ceilings(speculation.medusa.num_heads, nodes)
        field, wrong = "medusa", tree.problem(speculation.medusa.choices, built)
    else:
        return None
    return invalid(f"spec.speculation.{field}.choices {wrong}") if wrong else None


def split(model: SpeculativeModel, _: Images) -> Cause | None:
    """EAGLE heads and a recurrent drafter are split by tensors only."""
    pipeline, method = model.spec.target.parallelism.pipeline, model.spec.speculation.method
    if method not in (Method.EAGLE, Method.RE_DRAFTER) or pipeline == 1:
        return None
    return invalid(
        f"parallelism.pipeline of the target is {pipeline}, and {method} splits by tensors only: "
        "set pipeline to 1 and raise tensor"
    )


def converter(model: SpeculativeModel, _: Images) -> Cause | None:
    """The release's converter of heads quantizes, where that is asked for."""
    speculation, quantization = model.spec.speculation, model.spec.target.quantization
    if (quantization.method, quantization.kv_cache) == ("None", "Auto"):
        return None
    release = version(model)
    field = f"quantization of the target is {quantization.method} with cache "
    field += quantization.kv_cache
    if speculation.method is Method.EAGLE:
        return invalid(
            f"{field}, and the converter of Eagle quantizes nothing: remove quantization, or "
            "choose another method"
        )
    if speculation.method is Method.RE_DRAFTER and not at_least(release, _QUANTIZED_REDRAFTER):
        return invalid(
            f"{field}, and the ReDrafter converter of {release} quantizes nothing: remove "
            f"quantization, or set runtime.version to {_QUANTIZED_REDRAFTER} or newer"
        )
    return None
