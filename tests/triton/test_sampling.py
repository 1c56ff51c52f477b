"""A short sampling campaign: the server's sampled answers follow the target's distribution."""

from collections.abc import Iterator

import pytest

from campaigns import exchange, sampling, serving_tables
from campaigns.sampling import CASES, Case
from support.triton_server import Server

DRAWS = 3000


@pytest.fixture(scope="module")
def table_server() -> Iterator[Server]:
    with serving_tables.serving(*sampling.tables()) as running:
        yield running


@pytest.mark.parametrize("drafts", ["Lookup", "Both"])
def test_answers_with_lookups_are_samples_of_the_target(drafts: str) -> None:
    cases = [case for case in CASES if case.drafts == drafts]
    with serving_tables.serving(*sampling.tables(), cases[0].drafts) as server:
        looked_up = 0.0
        for case in cases:
            drawn = sampling.count(case, server, DRAWS)
            assert sampling.p_value(case, drawn) > sampling.P_VALUE, case.name
            # Without accepted tokens from lookups, the comparison would not test them.
            before, looked_up = looked_up, exchange.counts(server)["looked_up"]
            assert looked_up > before, case.name


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.drafts == "Model"], ids=lambda case: case.name
)
def test_answers_are_samples_of_the_target(table_server: Server, case: Case) -> None:
    counts = sampling.count(case, table_server, DRAWS)
    assert sampling.p_value(case, counts) > sampling.P_VALUE
    if case is CASES[0]:
        # The test would detect another distribution.
        assert sampling.p_value(CASES[2], counts) < 1e-6


@pytest.mark.parametrize("case", [CASES[1], CASES[4]], ids=lambda case: case.name)
def test_one_seed_for_all_rounds_would_be_noticed(table_server: Server, case: Case) -> None:
    # Only a few answers, since repeated random numbers make long answers.
    answers = sampling.answers(case, table_server, list(range(8)), ignores_seed=True)
    assert sampling.p_value(case, sampling.counts_of(case, answers)) < 1e-6


@pytest.mark.parametrize(
    ("statistic", "freedom", "probability"),
    # From tables of chi-square's quantiles.
    [(18.307, 10, 0.05), (76.154, 50, 0.01), (99.334, 100, 0.5), (366.844, 300, 0.005)],
)
def test_tail_of_chi_square(statistic: float, freedom: int, probability: float) -> None:
    assert sampling.tail(statistic, freedom) == pytest.approx(probability, rel=0.03)
