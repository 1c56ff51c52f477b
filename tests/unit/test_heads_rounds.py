"""The figures of heads replay rounds of drafts from one comparison with the target."""

import numpy as np

from pair_training.heads_rounds import acceptance, accepted_by_round

# An answer of six tokens: which draft tokens of a round that begins before each would be right.
AGREES = np.asarray(
    [
        [True, True, True],
        [True, False, True],
        [True, True, True],
        [True, True, False],
        [False, True, True],
        [True, True, True],
    ]
)


def test_rounds_begin_after_the_first_token_and_end_at_a_wrong_draft() -> None:
    # Tokens 1 and 2 (one draft and the target's), then 3 to 5 (two drafts and the target's).
    assert accepted_by_round(AGREES, 3, 6) == [1, 2]
    assert accepted_by_round(AGREES, 1, 6) == [1, 1, 1]


def test_draft_after_a_wrong_one_does_not_count() -> None:
    assert accepted_by_round(AGREES[3:5], 3, 2) == [0]


def test_acceptance_is_reported_by_position() -> None:
    assert acceptance([AGREES, AGREES], 3, 6) == {
        "draft_length": 3,
        "accepted_percent": 50.0,
        "accepted_percent_by_position": [100.0, 50.0, 0.0],
        "tokens_per_target_step": 2.5,
    }
