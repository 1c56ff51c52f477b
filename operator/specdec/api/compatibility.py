"""Whether a draft fits its target, judged from the small facts that inspection leaves of each.

Speculative decoding compares token ids of two models, so both must mean the same token by the
same id.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Finding:
    """Why a pair does not fit: a CamelCase code and one sentence with values and the mend."""

    code: str
    message: str


def pair(target: Facts, draft: Facts) -> list[Finding]:
    """Compare the two checkpoints; an empty list means that they fit.

    A fact that either side lacks is not compared.
    """
    found = []
    if _differ(target, draft, "tokenizer"):
        found.append(
            Finding(
                "TokenizerMismatch",
                f"draft and target have different tokenizers ({draft['tokenizer']} and "
                f"{target['tokenizer']}): choose a draft trained with the target's tokenizer",
            )
        )
    if _differ(target, draft, "vocabSize"):
        found.append(
            Finding(
                "VocabSizeMismatch",
                f"the draft's vocabulary has {draft['vocabSize']} entries and the target's "
                f"{target['vocabSize']}: choose a draft with the target's vocab_size",
            )
        )
    for name, key in (("end-of-text", "eos"), ("begin-of-text", "bos")):
        if _differ(target, draft, key):
            found.append(
                Finding(
                    "SpecialTokensMismatch",
                    f"the {name} token is {draft[key]} in the draft and {target[key]} in the "
                    f"target: make {key}_token_id equal in both checkpoints' config.json",
                )
            )
    return found


def _differ(target: Facts, draft: Facts, key: str) -> bool:
    values = target.get(key), draft.get(key)
    return None not in values and values[0] != values[1]


def caution(role: str, facts: Facts, max_seq_len: int) -> str:
    """What to know of a sequence length (tokens) beyond what the checkpoint was trained on.

    Rotary positions go on beyond it, so this is no reason to refuse; empty when there is none.
    """
    positions = facts.get("maxPosition")
    if not isinstance(positions, int) or max_seq_len <= positions:
        return ""
    return (
        f"the {role} was trained on {positions} positions and limits.maxSeqLen allows "
        f"{max_seq_len}: longer sequences may lose quality and acceptance"
    )
