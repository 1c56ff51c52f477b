"""The serving campaign, short: everything at once, and nothing wrong, lost or growing."""

from __future__ import annotations

import pytest

from bench.report import Report
from campaigns import serving
from campaigns.traffic import CLIENTS, Baseline

SECONDS = 5.0


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
