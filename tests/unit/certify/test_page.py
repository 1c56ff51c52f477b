"""The page of a run: passed, failed and untried entries, and no markup from their texts."""

import re
from dataclasses import asdict
from html.parser import HTMLParser
from typing import Any

import pytest
from typing_extensions import override

from specdec.api.matrix import Backend
from specdec.tools.certify import page, report
from specdec.tools.certify.facts import Gpus
from specdec.tools.certify.matrix import matrix
from specdec.tools.certify.request import CertifyRequest
from unit.certify.bodies import alone, load, served

Json = dict[str, Any]
HOSTILE = '<script>alert(1)</script> & "quotes"'
GPUS = Gpus("NVIDIA-L4", 1, 1, 23034, "8.9", "590.44")


def finished(body: Json, outcome: str = "passed", **changes: Any) -> Json:
    return {
        "outcome": outcome,
        "sentence": f"sentence of {outcome}",
        "stages": [{"stage": "EnginesReady", "status": "True", "seconds": 90.0}],
        "status": body["status"],
        "throughput": load(),
        "servers": [
            {"pod": "certify-x-0", "rounds": 20, "gpus": [{"usedMiB": 9, "totalMiB": 99}]}
        ],
        "notes": [],
        "logs": [],
        **changes,
    }


def run() -> Json:
    request = CertifyRequest(backend=Backend("TensorRT"), gpu_product="NVIDIA-L4")
    return {
        "id": "1a2b3c4d",
        "startedAt": "2026-01-02T03:00:00Z",
        "version": "0.1.0",
        "request": request.as_json(),
        "kubernetes": ["v1.34.1"],
        "gpus": asdict(GPUS),
        "entries": [
            {
                "name": entry.name,
                "title": entry.title,
                "method": entry.method,
                "notTried": entry.not_tried,
                "baseline": entry.baseline,
            }
            for entry in matrix(request, GPUS)
        ],
    }


STATES = {
    "baseline": finished(alone()),
    "draft-target-shared": finished(served(), throughput=load(150, 200)),
    "logits": finished(
        served(), "failed", sentence=HOSTILE, throughput=None, notes=[HOSTILE], logs=["a/b.log"]
    ),
}


def html(states: dict[str, Json] = STATES, log: str = "") -> str:
    return page.as_html(report.document(run(), states), lambda _: log)


class Text(HTMLParser):
    """Collects text, elements and links; raises an error for an element that is not closed."""

    _EMPTY = frozenset({"meta"})

    def __init__(self, source: str) -> None:
        super().__init__()
        self.text, self.tags, self.links, self._stack = "", set[str](), list[str](), list[str]()
        self.feed(source)
        assert self._stack == []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in self._EMPTY:
            self._stack.append(tag)

    @override
    def handle_endtag(self, tag: str) -> None:
        assert self._stack.pop() == tag

    @override
    def handle_data(self, data: str) -> None:
        self.text += data


def test_page_has_every_entry_with_its_sentence() -> None:
    shown = Text(html())
    for part in (
        "1 of 3 failed, 13 not tried",
        "sentence of passed",
        "it needs 2 GPUs on one node, and no node has more than 1",
        "it needs a checkpoint: add --heads Eagle=SOURCE",
        "not reached",
        "NVIDIA-L4: 1 on a node, 1 in all, 23034 MiB each, driver 590.44",
        "Qwen/Qwen2.5-1.5B-Instruct",
        "4 of 4 answers equal those of the baseline.",
        "60 of 80 draft tokens (75 %)",
        "12000 of 81559 MiB",
        "9 of 99 MiB",
        "1 min 30 s",
    ):
        assert part in shown.text, part
    speeds = re.findall(r"draft-target-shared, \d+ clients?: (\d+) %", html())
    assert speeds == ["150", "50"]


def test_text_of_the_cluster_is_escaped() -> None:
    source = html(log=f"{HOSTILE}\n")
    shown = Text(source)
    assert "script" not in shown.tags
    assert shown.text.count(HOSTILE) == 4
    # The page opens anywhere, because it has no scripts and loads nothing.
    assert all(link.startswith("#") for link in shown.links)
    assert not re.search(r"https?://|url\(", source)


def test_logs_show_their_last_lines() -> None:
    log = "".join(f"line {number};\n" for number in range(100))
    source = html(log=log)
    assert "line 99;" in source
    assert f"line {100 - page.LOG_LINES};" in source
    assert f"line {99 - page.LOG_LINES};" not in source


def test_page_of_a_run_without_a_baseline_has_no_comparison() -> None:
    states = {"logits": finished(served())}
    assert "Speed relative to the baseline" not in html(states)
    assert "1 of 1 passed, 15 not tried" in html(states)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (7261, "2 h 1 min")]
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert page.duration(seconds) == text
