"""Draft lengths: what an engine is built for, what a request may ask for, and the default."""

from specdec.api.model import Lookahead, Method, SpeculativeModel
from specdec.api.speculation import LengthPolicy
from specdec.triton.plan import DraftLengths


def max_draft_len(model: SpeculativeModel) -> int:
    """The draft length (tokens) that the target's engine is built for.

    Lookahead decoding (Fu et al., 2024) verifies G n-grams beside a window of W columns and N - 1
    rows; the longest input of one step beyond the first token follows from W, N and G.
    A recurrent drafter offers every token of every beam.
    """
    speculation = model.spec.speculation
    if speculation.method in (Method.DRAFT_TARGET, Method.EAGLE, Method.MEDUSA):
        return speculation.max_draft_tokens or 0
    if speculation.method is Method.RE_DRAFTER:
        drafter = speculation.re_drafter
        return drafter.num_beams * drafter.draft_len_per_beam if drafter else 0
    if speculation.method is Method.LOOKAHEAD:
        sizes = speculation.lookahead or Lookahead()
        n = sizes.ngram_size
        first = 0 if n == 1 else n - 2
        return first + (sizes.window_size - 1 + sizes.verification_set_size) * (n - 1)
    return 0


def draft_ceiling(model: SpeculativeModel) -> int:
    """The longest draft (tokens) a request may ask for; 0 where requests have no say."""
    speculation = model.spec.speculation
    if speculation.method is not Method.DRAFT_TARGET:
        return 0
    block = speculation.draft_target
    ceiling = block.draft_length_ceiling if block else None
    return (speculation.max_draft_tokens or 0) if ceiling is None else ceiling


def draft_tokens(model: SpeculativeModel) -> int:
    """The server's default draft length: the spec's, else as long as a request may ask for."""
    speculation = model.spec.speculation
    if speculation.method is not Method.DRAFT_TARGET:
        return 0
    wanted = speculation.draft_tokens
    return draft_ceiling(model) if wanted is None else wanted


def adaptive_lengths(model: SpeculativeModel) -> DraftLengths | None:
    """Bounds within which the server chooses draft lengths; None where they are fixed.

    They never exceed what a request may ask for.
    """
    policy = model.spec.speculation.draft_length_policy
    if policy is None or policy.type is not LengthPolicy.ADAPTIVE:
        return None
    ceiling = draft_ceiling(model)
    most = ceiling if policy.max_length is None else min(policy.max_length, ceiling)
    return DraftLengths(min(policy.min_length, most), most)
