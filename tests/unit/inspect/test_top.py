"""`specdec top`: figures from two readings of metrics, and pods that fail."""

import asyncio
import io
import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result
from typing_extensions import override

from specdec.cluster import Transient
from specdec.tools.cli.app import app
from specdec.tools.inspect.figures import Figures, SourceFigures, figures, reading
from specdec.tools.inspect.show import Display, fitted, table
from specdec.tools.inspect.top import Row, Watch, metrics_port
from support.fake_api import Api, Json, pages, pod, proxied
from support.fake_cluster import FakeCluster
from support.metrics_page import LATER, page
from unit.inspect.recorded import PODS, record

DRAFT_SERVER = """# TYPE nv_inference_request_success counter
nv_inference_request_success{model="tensorrt_llm",version="1"} 8
# TYPE nv_trt_llm_request_metrics gauge
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active"} 6
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting"} 1
"""


def test_figures_cover_the_time_between_two_readings() -> None:
    result = figures(reading(page(), 100.0), reading(page(**LATER, in_flight=7, kv=0.5), 110.0))
    assert result == Figures(
        acceptance_percent=75.0,
        tokens_per_round=4.0,
        draft_length=4.0,
        in_flight=7.0,
        waiting=1.0,
        requests_per_second=2.0,
        tokens_per_second=8.0,
        fallbacks=1.0,
        kv_percent=50.0,
    )


BEFORE = {"drafted model": 100, "accepted model": 50, "drafted lookup": 9, "accepted lookup": 9}
AFTER = {"drafted model": 120, "accepted model": 60, "drafted lookup": 69, "accepted lookup": 63}


def test_sources_of_drafts_have_figures_of_their_own() -> None:
    result = figures(reading(page(**BEFORE), 1.0), reading(page(**AFTER), 2.0))
    assert list(result.sources.items()) == [
        ("lookup", SourceFigures(share_percent=75.0, acceptance_percent=90.0)),
        ("model", SourceFigures(share_percent=25.0, acceptance_percent=50.0)),
    ]
    idle = figures(reading(page(**BEFORE), 1.0), reading(page(**BEFORE), 2.0))
    assert idle.sources == {}


@pytest.mark.parametrize("width", [80, 200])
def test_each_source_has_a_line_if_there_are_several(width: int) -> None:
    several = figures(reading(page(**BEFORE), 1.0), reading(page(**AFTER), 2.0))
    one = replace(several, sources={"model": several.sources["model"]})
    pods = [
        Row("lab", "pair", f"pair-{number}", "server", "Ready", shown)
        for number, shown in enumerate((several, one))
    ]
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(table(pods))
    lines = console.export_text(clear=False).splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["pair-0", "-", "-", "pair-1"]
    sources = [line for line in lines if line.startswith("- ")]
    assert [line.split() for line in sources] == [
        ["-", "lookup", "75", "%", "90.0"],
        ["-", "model", "25", "%", "50.0"],
    ]


def test_idle_server_has_no_acceptance() -> None:
    result = figures(reading(page(), 1.0), reading(page(), 2.0))
    assert (result.acceptance_percent, result.tokens_per_round) == (None, None)
    assert (result.requests_per_second, result.tokens_per_second, result.fallbacks) == (0, 0, 0)


@pytest.mark.parametrize(
    "before", [None, reading(page(**LATER), 1.0)], ids=["first reading", "restarted server"]
)
def test_without_a_first_reading_there_are_only_gauges(before: Any) -> None:
    result = figures(before, reading(page(), 2.0))
    assert result == Figures(draft_length=4, in_flight=3, waiting=1, kv_percent=25)


def test_server_without_a_bls_has_figures_of_its_engine() -> None:
    later = DRAFT_SERVER.replace(" 8\n", " 28\n")
    result = figures(reading(DRAFT_SERVER, 0.0), reading(later, 10.0))
    assert result == Figures(in_flight=6, requests_per_second=2.0)


@pytest.fixture
def watched(api: Api, login: object, monkeypatch: pytest.MonkeyPatch) -> Api:
    """Return a server with two ready pods; only the first serves requests. Skip every sleep."""
    record(api)

    async def skip(seconds: float) -> None:
        assert seconds >= 1

    monkeypatch.setattr("specdec.tools.cli.status.asyncio.sleep", skip)
    api.objects[PODS] = [pod("pair-0", "server"), pod("pair-1", "server")]
    api.objects[proxied("pair-0")] = pages(page(), page(**LATER))
    api.objects[proxied("pair-1")] = pages(page(), page())
    return api


def top(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["top", *arguments])


def test_every_serving_pod_has_a_line(watched: Api) -> None:
    result = top("pair", "--once")
    assert result.exit_code == 0, result.output
    first, second = (line.split() for line in result.stdout.splitlines()[-2:])
    assert first[:5] == ["pair-0", "Ready", "75.0", "4.00", "4"]
    assert second[:5] == ["pair-1", "Ready", "-", "-", "4"]
    selector = next(selector for path, selector in watched.seen if path == PODS)
    assert selector == (
        "app.kubernetes.io/managed-by=specdec,"
        "app.kubernetes.io/component in (server, draft-server),specdec.dev/model=pair"
    )


def test_json_has_one_line_per_interval(watched: Api) -> None:
    result = top("--once", "--json")
    assert result.exit_code == 0, result.output
    [line] = result.stdout.splitlines()
    interval = json.loads(line)
    assert interval["format"] == "specdec.dev/top/v1"
    first, second = interval["pods"]
    assert (first["pod"], first["model"], first["server"]) == ("pair-0", "pair", "server")
    assert (first["acceptance_percent"], first["tokens_per_round"]) == (75.0, 4.0)
    assert (second["acceptance_percent"], second["fallbacks"], second["error"]) == (
        None,
        0.0,
        None,
    )


def test_the_metrics_are_read_at_the_port_that_the_pod_names() -> None:
    proxy = {
        "ports": [{"name": "http", "containerPort": 1}, {"name": "metrics", "containerPort": 2}]
    }
    assert metrics_port({"spec": {"containers": [{}, proxy]}}) == 2
    assert metrics_port({"spec": {"containers": [{}]}}) == 8002


def test_failing_pod_does_not_affect_the_others(watched: Api) -> None:
    watched.errors[proxied("pair-1")] = (503, "error trying to reach service: refused")
    result = top("--once")
    assert result.exit_code == 3
    assert " 75.0 " in result.stdout
    assert "pair-1  no answer" in result.stdout
    assert result.stderr == (
        "specdec: the API server answers 503 about Pod pair-1: error trying to reach service: "
        "refused\n"
    )


@pytest.mark.parametrize(
    ("response", "status", "message"),
    [
        ({"not": "metrics"}, 1, "Pod pair-1: the response is not a page of metrics"),
        (None, 3, "Pod pair-1 has no metrics at port 8002: not found"),
    ],
)
def test_invalid_metrics_are_reported(
    watched: Api, response: Any, status: int, message: str
) -> None:
    watched.objects[proxied("pair-1")] = response
    result = top("--once")
    assert result.exit_code == status
    assert message in result.stderr


def test_missing_permission_is_one_sentence(watched: Api) -> None:
    message = 'User "me" cannot get resource "pods/proxy"'
    for name in ("pair-0", "pair-1"):
        watched.errors[proxied(name)] = (403, message)
    result = top()
    assert (result.exit_code, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1
    assert message in result.stderr


def test_pods_that_do_not_serve_yet_are_shown_without_an_error(watched: Api) -> None:
    loading = pod("pair-1", "server")
    loading["status"]["conditions"] = []
    deleting = pod("pair-2", "server")
    deleting["metadata"]["deletionTimestamp"] = "2026-01-02T03:00:00Z"
    watched.objects[PODS] = [loading, deleting, pod("pair-3", "draft-server", "Pending")]
    result = top("--once", "--json")
    assert result.exit_code == 0, result.output
    states = {item["pod"]: item["state"] for item in json.loads(result.stdout)["pods"]}
    assert states == {"pair-1": "Starting", "pair-2": "Terminating", "pair-3": "Pending"}
    assert not any("pair-3" in path for path, _ in watched.seen), "it has no address yet"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["pear"], 2, "there is no SpeculativeModel pear in namespace lab: it has pair"),
        (["pair"], 3, "no pod serves SpeculativeModel pair in namespace lab"),
        ([], 3, "no pod serves any SpeculativeModel in namespace lab"),
    ],
)
def test_missing_pods_are_explained(
    watched: Api, arguments: list[str], status: int, message: str
) -> None:
    watched.objects[PODS] = []
    result = top("--once", *arguments)
    assert result.exit_code == status
    assert message in result.stderr


def test_ctrl_c_exits_with_0(watched: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    intervals = 0

    async def interrupt_third(seconds: float) -> None:
        nonlocal intervals
        intervals += 1
        if intervals == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("specdec.tools.cli.status.asyncio.sleep", interrupt_third)
    result = top("--json")
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 2


class OnePod(FakeCluster):
    """Lists a ready pod for every selector."""

    @override
    async def list(
        self, api_version: str, kind: str, namespace: str | None, selector: str = ""
    ) -> list[Json]:
        self._record("list", kind, selector)
        return [pod("pair-0", "server")]


def test_temporary_error_keeps_the_last_rows() -> None:
    fake = OnePod()
    fake.pages = {"pair-0": page()}

    async def watch() -> None:
        watch = Watch(fake, "lab", None)
        rows = await watch.read()
        fake.fail["list", "Pod"] = Transient("the API server did not answer")
        assert await watch.read(keep_last=True) == rows
        assert watch.last_error == "the API server did not answer"
        with pytest.raises(Transient):
            await watch.read()
        del fake.fail["list", "Pod"]
        fake.pages = {"pair-0": page(**LATER)}
        [row] = await watch.read(keep_last=True)
        assert watch.last_error is None
        assert row.figures is not None
        assert row.figures.acceptance_percent == 75

    asyncio.run(watch())


def test_table_fits_100_columns() -> None:
    everything = Figures(99.9, 16.25, 16, 256, 1000, 1234.5, 123456, 1234, 100)
    row = Row("lab", "pair", "code-assistant-7c9f8d6b5d-x2x4z", "server", "Ready", everything)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table([row]))
    line = next(text for text in console.export_text().splitlines() if "99.9" in text)
    figures = "99.9 16.25 16 256 1000 1234.5 123456 1234 100"
    assert line.split()[-9:] == figures.split()


EVERYTHING = Figures(99.9, 16.25, 16, 256, 1000, 1234.5, 123456, 1234, 100)
POD = "code-assistant-server-7c9f8d6b5d-x2x4z"


def screen_lines(rows: list[Row], width: int) -> list[str]:
    """Return the lines of a terminal of a width, without spaces at their ends."""
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(fitted(rows, width))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_at_80_columns_names_of_pods_are_whole_and_no_figure_is_missing() -> None:
    rows = [
        Row("models", "pair", POD, "server", "Ready", EVERYTHING),
        Row("other", "pair", POD, "server", "CrashLoopBackOff"),
    ]
    first, second, *pods = screen_lines(rows, 80)
    assert pods == [
        f"models/{POD}  Ready",
        "    99.9   16.25     16     256   1000  1234.5  123456   1234  100",
        f"other/{POD}  CrashLoopBackOff",
    ]
    assert first.split()[:3] == ["accep-", "tokens", "draft"]
    assert second.split()[-2:] == ["back", "%"]


def test_narrower_terminal_leaves_out_the_least_important_figures() -> None:
    rows = [Row("lab", "pair", POD, "server", "Ready", EVERYTHING)]
    for width, shown_figures in ((50, "99.9 16.25 256 1000 1234.5 123456"), (20, "99.9 16.25")):
        shown = screen_lines(rows, width)
        assert max(len(line) for line in shown if POD[:20] not in line) <= width
        assert next(line.split() for line in shown if "99.9" in line) == (shown_figures.split())


def test_terminal_has_one_table_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(width=120, force_terminal=True, file=io.StringIO())
    monkeypatch.setattr("specdec.tools.inspect.show.screen", lambda: console)
    row = Row("lab", "pair", "pair-0", "server", "Ready", Figures(50.0))
    with Display(as_json=False, once=False) as display:
        display.first([row])
        display.next([row], "the API server did not answer")
    output = console.file
    assert isinstance(output, io.StringIO)
    shown = output.getvalue()
    assert "\x1b[1A" in shown, "the first table is overwritten"
    assert "the API server did not answer" in shown
