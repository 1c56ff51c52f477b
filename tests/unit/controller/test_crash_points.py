"""A short campaign of crashes and lost answers: every seventh write of each workload."""

import pytest

from campaigns.crash_points import WORKLOADS, problems


@pytest.mark.parametrize("workload", WORKLOADS)
def test_operator_reaches_the_same_state_after_a_fault_at_a_write(workload: str) -> None:
    runs = list(problems(workload, lambda writes: iter(range(3, writes, 7))))
    assert len(runs) >= 10
    assert [problem for run in runs for problem in run] == []
