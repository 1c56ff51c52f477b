"""An advice of a rule is itself accepted: no message sends people to a value that is refused."""

import pytest

from support import crd_cases
from support.crd_cases import Case
from unit.advice.following import alternatives, dead_ends, read, refusal

# Refusals of a change depend on the stored resource, which the advice cannot change.
CASES = [case for case in crd_cases.bad() if not case.after]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_advice_of_a_refused_resource_is_accepted(case: Case) -> None:
    problem = refusal(case.resource())
    assert problem is not None
    assert dead_ends(case.resource()) == [], problem.message


def test_most_advice_with_a_value_is_followed() -> None:
    """The reader of messages understands enough of them for the test above to mean something."""
    problems = [p for case in CASES if (p := refusal(case.resource()))]
    named = [
        (advice, problem.field)
        for problem in {problem.message: problem for problem in problems}.values()
        for advice in alternatives(problem.message)
        if advice.startswith(("set ", "remove "))
    ]
    followed = [advice for advice, field in named if list(read(advice, field))]
    assert len(followed) > len(named) / 2, sorted({a for a, _ in named} - set(followed))
