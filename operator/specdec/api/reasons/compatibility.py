"""Reasons of `Compatible`: whether the fetched models match."""

from specdec.api.condition_types import Type
from specdec.api.reasons.definition import Health, Reason, Section

_SECTION = Section(Type.COMPATIBLE)


class CompatibilityReason(Reason):
    """Reasons of `Compatible`."""

    FITS = _SECTION.progress("Fits", "the fetched models match")
    FITS_WITH_WARNINGS = _SECTION.blocked(
        "FitsWithWarnings",
        "the resource is served; the message lists findings whose check is set to `Warn`",
        "look up the code of each finding in this table",
        health=Health.PROGRESSING,
    )
    TOKENIZER_MISMATCH = _SECTION.failed(
        "TokenizerMismatch",
        "the tokenizers of draft and target differ",
        "choose a draft made for this target",
    )
    VOCAB_SIZE_MISMATCH = _SECTION.failed(
        "VocabSizeMismatch",
        "the vocabulary sizes of draft and target differ",
        "choose a draft made for this target",
    )
    PADDED_VOCAB_MISMATCH = _SECTION.failed(
        "PaddedVocabMismatch",
        "acceptance `Logits` needs equal vocabulary sizes after padding to the tensor parallelism",
        "set `acceptance: Tokens`, or a parallelism that pads both to the same size",
    )
    SPECIAL_TOKENS_MISMATCH = _SECTION.failed(
        "SpecialTokensMismatch",
        "the end-of-text or begin-of-text tokens of draft and target differ",
        "choose a draft made for this target",
    )
    CHAT_TEMPLATE_MISMATCH = _SECTION.failed(
        "ChatTemplateMismatch",
        "the chat templates of draft and target differ",
        "choose a draft tuned with the target's template",
    )
    CONTEXT_TOO_SHORT = _SECTION.failed(
        "ContextTooShort",
        "`limits.maxSeqLen`, alone or with draft tokens, exceeds the context length of a model",
        "lower `limits.maxSeqLen`",
    )
    HEADS_METHOD_MISMATCH = _SECTION.failed(
        "HeadsMethodMismatch",
        "the heads were trained for another method",
        "choose heads for `spec.speculation.method`",
    )
    HEADS_HIDDEN_SIZE_MISMATCH = _SECTION.failed(
        "HeadsHiddenSizeMismatch",
        "the hidden sizes of heads and target differ",
        "choose heads trained on this target",
    )
    HEADS_VOCAB_SIZE_MISMATCH = _SECTION.failed(
        "HeadsVocabSizeMismatch",
        "the vocabulary sizes of heads and target differ",
        "choose heads trained on this target",
    )
    HEADS_COUNT_MISMATCH = _SECTION.failed(
        "HeadsCountMismatch",
        "`medusa.numHeads` exceeds the number of heads in the checkpoint",
        "lower `medusa.numHeads`",
    )
    HEADS_LAYERS_MISMATCH = _SECTION.failed(
        "HeadsLayersMismatch",
        "the number of layers in the heads differs from `medusa.numLayers`, EAGLE heads do not "
        "have exactly one layer, or heads were trained on a target of other layers",
        "correct the field in the message, or choose other heads",
    )
    HEADS_LAYOUT_UNKNOWN = _SECTION.failed(
        "HeadsLayoutUnknown",
        "the heads have the files of another library, which the backend is not known to load",
        "convert the heads, or set the backend in the message",
    )
    DRAFT_LENGTH_MISMATCH = _SECTION.failed(
        "DraftLengthMismatch",
        "`maxDraftTokens` exceeds the number of tokens that the draft proposes in a step",
        "lower `maxDraftTokens`",
    )
    MTP_LAYERS_MISSING = _SECTION.failed(
        "MtpLayersMissing",
        "the target's checkpoint has no layers that predict several tokens",
        "choose a target with such layers, or another method",
    )
    ARCHITECTURE_NOT_SERVED = _SECTION.failed(
        "ArchitectureNotServed",
        "the backend is not known to serve the architecture of a checkpoint",
        "choose another checkpoint or backend; a backend without engines tries any architecture "
        "if `spec.checks.architecture` is not `Enforce`",
    )
    HEADS_NOT_DIVISIBLE = _SECTION.failed(
        "HeadsNotDivisible",
        "`parallelism.tensor` does not divide the attention heads of a model, or it neither "
        "divides its key/value heads nor is a multiple of them",
        "set `parallelism.tensor` to a number in the message",
    )
    TARGET_ARCHITECTURE_MISMATCH = _SECTION.failed(
        "TargetArchitectureMismatch",
        "heads of this method are not known to work with the target's architecture",
        "choose another target, or a method without heads",
    )
