"""What a person can change about speculation that does not help: only what the method has."""

from specdec import backends
from specdec.api.model import SpeculativeModel
from specdec.api.speculation import LengthPolicy
from specdec.backends.methods.definition import PLAIN

_WITHOUT = "set spec.speculation.method to None"


def speed(model: SpeculativeModel) -> str:
    """The resolution of a speed below that of the target alone."""
    steps = _lengths(model)
    if "draft" in model.sources:
        steps.append("choose a faster draft")
    if _per_request(model) and not _adaptive(model):
        steps.append("set spec.speculation.draftLengthPolicy.type to Adaptive")
    if model.spec.verification.prompts_config_map_ref is None:
        steps.append("measure with your own prompts (spec.verification.promptsConfigMapRef)")
    return _alternatives([*steps, _WITHOUT])


def acceptance(model: SpeculativeModel) -> str:
    """The resolution of a low share of accepted draft tokens."""
    steps = []
    if "draft" in model.sources:
        steps.append("choose a draft closer to the target")
    if "heads" in model.sources:
        steps.append("choose heads that are trained on this target")
    return _alternatives([*steps, *_lengths(model), _WITHOUT])


def _lengths(model: SpeculativeModel) -> list[str]:
    """The field that sets the draft length; empty if it cannot be lowered.

    The adaptive policy already shortens drafts that do not help, down to none. Heads in an engine
    draft a tree, which the length follows.
    """
    method = backends.method(model)
    drafts = method.draft_tokens(model)
    if drafts is not None:
        shorter = drafts > 1 and not _adaptive(model)
        return [f"set spec.speculation.draftTokens below {drafts}"] if shorter else []
    longest = model.spec.speculation.max_draft_tokens
    if longest is None or longest < 2 or method.build_mode != PLAIN:
        return []
    return [f"set spec.speculation.maxDraftTokens below {longest}"]


def _per_request(model: SpeculativeModel) -> bool:
    return backends.method(model).draft_tokens(model) is not None


def _adaptive(model: SpeculativeModel) -> bool:
    policy = model.spec.speculation.length_policy.type
    return _per_request(model) and policy is LengthPolicy.ADAPTIVE


def _alternatives(steps: list[str]) -> str:
    """Alternatives in a sentence, as in "a, b, or c"."""
    *first, last = steps
    return f"{', '.join(first)}, or {last}" if first else last
