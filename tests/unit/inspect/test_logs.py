"""`specdec logs` prints every line of every pod once, despite lost connections and new pods."""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from typer.testing import CliRunner, Result
from typing_extensions import override

from specdec.tools.cli.app import app
from specdec.tools.inspect import logs
from support.fake_api import Api, Json, pod
from unit.inspect.recorded import JOBS, PODS, RESOURCE, record

pytestmark = pytest.mark.usefixtures("login")
OWN = "specdec.dev/model=pair"


class Logged(Api):
    """Serves logs as a kubelet does: lines with times, selected by whole seconds.

    Attributes:
        logs: the lines by pod and container.
        requests: pod, container and query of each request for a log.
    """

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[tuple[str, str], list[str]] = {}
        self.requests: list[tuple[str, str, Json]] = []

    @override
    def respond(self, address: str) -> tuple[int, bytes]:
        parts = urlsplit(address)
        if not parts.path.endswith("/log") or parts.path in self.errors:
            return super().respond(address)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        name = parts.path.split("/")[-2]
        lines = self.logs[name, query["container"]]
        assert query["timestamps"] == "true"
        since = query.get("sinceTime", "")[:19]
        kept = [line for line in lines if line[:19] >= since]
        kept = kept[-int(query["tailLines"]) :] if "tailLines" in query else kept
        body = "".join(f"{line}\n" for line in kept).encode()
        self.requests.append((name, query["container"], query))
        return 200, body


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Logged:
    monkeypatch.setattr(logs, "INTERVAL", 0.0)
    logged = Logged()
    record(logged)
    logged.objects[JOBS] = []
    return logged


def at(second: int, text: str, fraction: int = 0) -> str:
    return f"2026-01-02T03:04:{second:02}.{fraction:09}Z {text}"


def container(name: str, state: str = "running", restarts: int = 0, **changes: Any) -> Json:
    return {"name": name, "restartCount": restarts, "state": {state: {}}, **changes}


def running(name: str, *containers: Json, component: str = "server") -> Json:
    return pod(name, component, containerStatuses=list(containers))


def specdec(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["logs", "pair", *arguments])


def given_two_pods(api: Logged) -> None:
    fetch = running("pair-fetch-1", container("fetch", "terminated"), component="fetch")
    server = running("pair-0", container("server"), container("openai"))
    # Pods are listed newest first.
    server["metadata"]["creationTimestamp"] = "2026-01-02T04:00:00Z"
    api.objects[PODS] = [server, fetch]
    api.logs = {
        ("pair-fetch-1", "fetch"): [at(1, "fetching"), at(2, "done")],
        ("pair-0", "server"): [at(3, "starting"), at(4, "ready: yes")],
        ("pair-0", "openai"): [at(5, "listening")],
    }


def test_each_line_has_its_pod_and_one_of_several_containers(api: Logged) -> None:
    given_two_pods(api)
    result = specdec()
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "pair-fetch-1: fetching",
        "pair-fetch-1: done",
        "pair-0/server: starting",
        "pair-0/server: ready: yes",
        "pair-0/openai: listening",
    ]


def test_options_select_lines(api: Logged) -> None:
    given_two_pods(api)
    result = specdec("--component", "fetch", "--tail", "1", "--timestamps")
    assert result.stdout == f"pair-fetch-1: {at(2, 'done')}\n"
    assert [name for name, *_ in api.requests] == ["pair-fetch-1"]
    assert "set it to 0 or more" in specdec("--tail", "-1").stderr


def test_pods_of_a_shared_job_are_included(api: Logged) -> None:
    record(api)
    for (name, component), lines in {
        ("engine-3f3f-1-x", "engine"): [at(1, "builds")],
        ("pair-0", "server"): [at(2, "serves")],
    }.items():
        api.logs[name, component] = lines
    pods: Callable[[str], list[Json]] = api.objects[PODS]

    def with_containers(selector: str) -> list[Json]:
        listed = [item for item in pods(selector) if item["status"]["phase"] == "Running"]
        for item in listed:
            component = item["metadata"]["labels"]["app.kubernetes.io/component"]
            item["status"]["containerStatuses"] = [container(component)]
        return listed

    api.objects[PODS] = with_containers
    assert set(specdec().stdout.splitlines()) == {"engine-3f3f-1-x: builds", "pair-0: serves"}


def test_container_that_has_not_started_has_no_log(api: Logged) -> None:
    crashed = container("openai", "waiting", 2, lastState={"terminated": {}})
    api.objects[PODS] = [running("pair-0", container("server", "waiting"), crashed)]
    api.logs = {("pair-0", "openai"): [at(1, "crashed")]}
    assert specdec().stdout == "pair-0/openai: crashed\n"


def test_resource_without_pods_is_one_sentence(api: Logged) -> None:
    api.objects[PODS] = []
    result = specdec()
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "specdec: lab/pair has no pod: specdec status shows why\n"


def test_unknown_component_lists_the_known_ones(api: Logged) -> None:
    given_two_pods(api)
    result = specdec("--component", "server2")
    assert "no pod of the component server2: it has pods of fetch, server\n" in result.stderr


def test_unknown_resource_exits_with_2(api: Logged) -> None:
    del api.objects[RESOURCE]
    result = specdec()
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "there is no SpeculativeModel pair" in result.stderr


def test_forbidden_log_leaves_the_others(api: Logged) -> None:
    given_two_pods(api)
    api.errors[f"{PODS}/pair-fetch-1/log"] = (403, 'User "me" cannot get pods/log')
    result = specdec()
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "the log of pair-fetch-1 is not included" in result.stderr
    assert result.stdout.startswith("pair-0/server: starting\n")


@pytest.mark.parametrize("arguments", [[], ["-f"]])
def test_forbidden_list_of_pods_exits_with_1(api: Logged, arguments: list[str]) -> None:
    api.errors[PODS] = (403, 'User "me" cannot list pods')
    result = specdec(*arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert 'User "me" cannot list pods' in result.stderr


def test_text_without_a_time_is_shown(api: Logged) -> None:
    api.objects[PODS] = [running("pair-0", container("server"))]
    api.logs = {("pair-0", "server"): ["unable to retrieve container logs", at(2, "")]}
    assert specdec().stdout == "pair-0: unable to retrieve container logs\npair-0: \n"


class Life:
    """Changes the pods of a resource in steps; a step ends when its pods' logs were requested."""

    def __init__(self, api: Logged, steps: list[tuple[list[Json], dict[str, list[str]]]]) -> None:
        self._api, self._steps = api, list(steps)
        self._requested = 0
        self._awaited: set[str] = set()
        api.objects[PODS] = self.pods
        self._pods: list[Json] = []
        self._begin()

    def pods(self, selector: str) -> list[Json]:
        read = {name for name, *_ in self._api.requests[self._requested :]}
        if selector == OWN and self._awaited <= read:
            self._begin()
        return self._pods if selector == OWN else []

    def _begin(self) -> None:
        if not self._steps:
            self._pods = []
            self._api.objects.pop(RESOURCE, None)
            return
        self._pods, lines = self._steps.pop(0)
        for name, added in lines.items():
            self._api.logs.setdefault((name, "server"), []).extend(added)
        self._requested, self._awaited = len(self._api.requests), set(lines)


def test_follow_writes_each_line_once_and_follows_new_pods(api: Logged) -> None:
    first, second = running("pair-0", container("server")), running("pair-1", container("server"))
    ended = running("pair-0", container("server", "terminated"))
    Life(
        api,
        [
            ([], {}),
            ([first], {"pair-0": [at(1, "one"), at(2, "two")]}),
            # A line with a time in the same second as the lost connection.
            ([first, second], {"pair-0": [at(2, "three", 7)], "pair-1": [at(1, "other")]}),
            ([ended, second], {"pair-0": [at(4, "last")]}),
            ([ended, second], {"pair-1": [at(9, "end")]}),
        ],
    )
    result = specdec("--follow", "--tail", "5")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line for line in lines if "pair-0" in line] == [
        "pair-0: one",
        "pair-0: two",
        "pair-0: three",
        "pair-0: last",
    ]
    assert [line for line in lines if "pair-1" in line] == ["pair-1: other", "pair-1: end"]
    assert result.stderr.splitlines()[-1] == "specdec: lab/pair was deleted"
    # The command does not read a complete log again.
    assert len([name for name, *_ in api.requests if name == "pair-0"]) <= len(api.requests) - 2
    assert all(query["follow"] == "true" for *_, query in api.requests)
    again = [query for name, _, query in api.requests if name == "pair-0"][1:]
    assert all("sinceTime" in query and "tailLines" not in query for query in again)


def test_follow_shows_the_run_after_a_restart(api: Logged) -> None:
    before = running("pair-0", container("server"))
    after = running("pair-0", container("server", restarts=1))
    Life(api, [([before], {"pair-0": [at(1, "before")]}), ([after], {"pair-0": []})])
    api.logs["pair-0", "server"] = [at(1, "before")]
    result = specdec("-f")
    # The fake serves the same log for both runs, and the command shows it for each run.
    assert set(result.stdout.splitlines()) == {"pair-0: before"}
    assert result.stdout.count("before") >= 2


def test_follow_outlives_a_lost_api_server(api: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    Life(api, [([running("pair-0", container("server"))], {"pair-0": [at(1, "one")]})])
    # Each check for new pods requests two lists of Jobs.
    statuses = iter([200, 200, 503, 503, 503, 503])
    respond = api.respond

    def sometimes(address: str) -> tuple[int, bytes]:
        if urlsplit(address).path != JOBS:
            return respond(address)
        if next(statuses, 200) == 200:
            return respond(address)
        return 503, b'{"kind": "Status", "message": "etcd is down"}'

    monkeypatch.setattr(api, "respond", sometimes)
    result = specdec("-f")
    assert result.exit_code == 0, result.output
    assert result.stdout == "pair-0: one\n"
    assert result.stderr.count("etcd is down") == 1


def test_follow_reports_a_forbidden_log_once(api: Logged) -> None:
    first, second = running("pair-0", container("server")), running("pair-1", container("server"))
    api.errors[f"{PODS}/pair-0/log"] = (403, "User cannot get pods/log")
    Life(api, [([first, second], {"pair-1": [at(n, "one")]}) for n in (1, 2, 3)])
    result = specdec("-f")
    assert result.stderr.count("the log of pair-0 is not included") == 1
    assert result.stdout.count("pair-1: one\n") == 3


def test_ctrl_c_ends_follow_with_0(api: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    given_two_pods(api)

    async def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("specdec.tools.inspect.logs.asyncio.sleep", interrupted)
    assert specdec("-f").exit_code == 0


def test_closed_output_ends_follow(api: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    given_two_pods(api)

    def closed(_: str) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("specdec.tools.cli.options.print_text", closed)
    assert specdec("-f").exit_code == 1
