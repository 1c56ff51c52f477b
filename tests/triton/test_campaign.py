"""Short campaigns: mixed traffic and greedy equivalence, without wrong or lost answers."""

from __future__ import annotations

from collections import Counter

import pytest

from campaigns import equivalence, serving
from campaigns.traffic import CLIENTS, Baseline
from support.bench_report import Report

pytestmark = pytest.mark.nightly

SECONDS = 5.0
CASES = 150


def test_sixty_four_clients_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report()
    with serving.served() as server:
        baseline = Baseline(server, serving.prompts())
        tally = serving.mixed(server, baseline, SECONDS, report)
        assert sum(tally.did.values()) >= CLIENTS
        assert {"stream", "unary", "cancel", "bad", "long"} == set(tally.did)
        counted = serving.counted(server, baseline, SECONDS / 5, report)
        assert counted.counted["accepted"] > 0
        assert "Traceback" not in server.log()
    assert report.missed == [], capsys.readouterr().err


def test_greedy_answers_equal_the_target() -> None:
    chunks = list(equivalence.run(CASES))
    cases = [case for chunk, _ in chunks for case in chunk]
    assert len(cases) == CASES
    assert [case.complaint() for case in cases if not case.equal] == []
    # The options must affect answers: each kind of end occurs often enough.
    ends = Counter(case.end for case in cases)
    kinds = ("end token", "length limit", "sequence limit", "stop word")
    assert min(ends[end] for end in kinds) > CASES // 20
    assert len({bool(case.values["stream"]) for case in cases}) == 2
    assert {case.beside for case in cases} == {0, 1, 2, 3}
    totals: Counter[str] = Counter()
    for _, counted in chunks:
        totals.update({name: int(value) for name, value in counted.items()})
    assert totals["accepted"] > CASES
    assert totals["early_rounds"] > 0
    assert totals["looked_up"] > 0
