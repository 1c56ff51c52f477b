"""Logs: whose are read, and that a reconcile does without them when they do not come."""

import asyncio
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from golden.world import resource
from specdec import cluster
from specdec.api.kinds import EXTRAS
from specdec.api.model import SpeculativeModel
from specdec.cluster import Cluster, Missing, Transient
from specdec.controller.observe import observe
from unit.controller.fakes import FakeCluster


def pod(name: str, component: str, phase: str) -> dict[str, Any]:
    labels = {"specdec.dev/model": "pair", "app.kubernetes.io/component": component}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "demo", "uid": name, "labels": labels},
        "status": {"phase": phase},
    }


PODS = [
    pod("building", "engine", "Running"),
    pod("fetching", "fetch", "Running"),
    pod("built", "engine", "Succeeded"),
    pod("starting", "engine", "Pending"),
    pod("serving", "server", "Running"),
]


async def test_only_running_build_and_fetch_pods_are_asked() -> None:
    fake = FakeCluster(*PODS)
    fake.logs = {"building": "progress phase=build percent=7", "fetching": "x"}
    seen = await observe(fake, SpeculativeModel.parse(resource()))
    assert seen.logs == fake.logs


async def test_ready_endpoints_are_counted_for_each_service() -> None:
    labels = {"specdec.dev/model": "pair"}
    service = {"kind": "Service", "metadata": {"name": "pair", "labels": labels}}
    slices = [
        {
            "kind": "EndpointSlice",
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": of}},
            "endpoints": ends,
        }
        for name, of, ends in (
            ("a", "pair", [{"conditions": {"ready": True}}, {"conditions": {"ready": False}}]),
            ("b", "pair", [{"addresses": ["10.0.0.1"]}]),
            ("c", "pair-draft", [{"conditions": {"ready": True}}]),
            ("d", "pair", None),
        )
    ]
    seen = await observe(FakeCluster(service, *slices), SpeculativeModel.parse(resource()))
    assert seen.endpoints == {"pair": 2}


async def test_a_server_s_log_is_read_where_a_container_watches_its_certificate() -> None:
    secure = pod("secure", "server", "Running")
    secure["spec"] = {"containers": [{"name": "server"}, {"name": "certificate"}]}
    fake = FakeCluster(secure)
    fake.logs = {"secure": "{}"}
    seen = await observe(fake, SpeculativeModel.parse(resource()))
    assert seen.logs == fake.logs
    assert ("log", "Pod", "secure/certificate") in fake.calls


def serving(name: str, *, ready: bool, state: str = "running") -> dict[str, Any]:
    server = pod(name, "server", "Running")
    status = {"name": "server", "state": {state: {}}, "ready": ready}
    return {**server, "status": {**server["status"], "containerStatuses": [status]}}


async def test_a_server_s_log_is_read_until_it_is_ready() -> None:
    """It ends with the files that the server waits for, where it does."""
    starting = serving("starting", ready=False)
    starting["spec"] = {"containers": [{"name": "server"}, {"name": "certificate"}]}
    crashed = serving("crashed", ready=False, state="waiting")
    fake = FakeCluster(starting, serving("ready", ready=True), crashed)
    fake.logs = {"starting": "{}"}
    seen = await observe(fake, SpeculativeModel.parse(resource()))
    assert seen.logs == {"starting": "{}", "starting/server": "{}"}
    logs = [call for call in fake.calls if call[0] == "log"]
    assert logs == [
        ("log", "Pod", "starting/certificate"),
        ("log", "Pod", "starting/server"),
    ]


@pytest.mark.parametrize(
    ("state", "last", "target"),
    [
        ({"waiting": {}}, {"terminated": {}}, "serving/server before its restart"),
        ({"running": {}}, {"terminated": {}}, "serving/server before its restart"),
        ({"terminated": {}}, {}, "serving/server"),
        ({"terminated": {}}, {"terminated": {}}, "serving/server"),
        ({"running": {}}, {}, None),
    ],
)
async def test_the_log_of_a_server_that_ended_is_that_of_the_run_that_ended(
    state: dict[str, Any], last: dict[str, Any], target: str | None
) -> None:
    ended = pod("serving", "server", "Running")
    status = {"name": "server", "ready": False, "state": state, "lastState": last}
    ended["status"]["containerStatuses"] = [status]
    fake = FakeCluster(ended)
    fake.logs = {"serving": "E"}
    seen = await observe(fake, SpeculativeModel.parse(resource()))
    assert seen.crashes == ({"serving": "E"} if target else {})
    read = [call[2] for call in fake.calls if call[0] == "log"]
    # Of a server that loads, the present log is read as well: it names damaged files.
    loading = ["serving/server"] if "running" in state else []
    assert read == loading + ([target] if target else [])


async def test_a_log_that_does_not_come_costs_only_the_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fake = FakeCluster(*PODS)
    caplog.set_level("DEBUG")
    fake.fail["log", "Pod"] = Transient("the kubelet is away")
    seen = await observe(fake, SpeculativeModel.parse(resource()))
    assert seen.logs == {"building": "", "fetching": ""}
    assert "no log of pod building: the kubelet is away" in caplog.text
    assert {record.levelname for record in caplog.records} == {"DEBUG"}


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An API server that knows one pod with a log, one without end, and no other."""

    never = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.match_info["pod"] == "stuck":
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"never ")
            await never.wait()
            return response
        if request.match_info["pod"] != "building":
            return web.json_response({"message": "no such pod"}, status=404)
        of = request.query.get("container", "")
        return web.Response(body=f"{request.query['tailLines']} lines{of} \xff".encode("latin-1"))

    app = web.Application()
    app.router.add_get("/api/v1/namespaces/demo/pods/{pod}/log", answer)
    started = TestServer(app)
    await started.start_server()
    monkeypatch.setattr(cluster, "LOG_TIMEOUT", 0.2)
    settings = Configuration(host=str(started.make_url("")).rstrip("/"))
    async with ApiClient(settings) as client:
        yield Cluster(client)
    never.set()
    await started.close()


async def test_a_log_is_text_of_so_many_lines(server: Cluster) -> None:
    assert await server.log("demo", "building", 40) == "40 lines \ufffd"
    assert await server.log("demo", "building", 1, " of one") == "1 lines of one \ufffd"


async def test_a_log_has_a_time_limit_and_its_errors_are_ours(server: Cluster) -> None:
    with pytest.raises(Transient, match="did not answer about Pod stuck"):
        await server.log("demo", "stuck", 40)
    with pytest.raises(Missing, match="no such pod"):
        await server.log("demo", "gone", 40)


def note(kinds: str) -> dict[str, Any]:
    """The resource's Service, which remembers kinds."""
    labels = {"specdec.dev/model": "pair"}
    meta = {"name": "pair", "labels": labels, "annotations": {"specdec.dev/extras": kinds}}
    return {"kind": "Service", "metadata": meta}


def looked_for(fake: FakeCluster) -> set[str]:
    return {kind for verb, kind, _ in fake.calls if verb == "list"} & EXTRAS.keys()


async def test_extras_are_looked_for_only_where_there_may_be_some() -> None:
    scaling = {"maxReplicas": 2, "metrics": [{"type": "Cpu", "target": "70"}]}
    for services, serving, kinds in (
        ((), {}, set()),
        ((note("ScaledObject,Sandwich"),), {}, {"ScaledObject"}),
        ((), {"scaling": scaling}, {"HorizontalPodAutoscaler"}),
    ):
        fake = FakeCluster(*services)
        await observe(fake, SpeculativeModel.parse(resource(serving=serving)))
        assert looked_for(fake) == kinds


async def test_a_kind_that_the_cluster_does_not_know_has_no_objects() -> None:
    fake = FakeCluster(note("ScaledObject"))
    fake.fail["list", "ScaledObject"] = Missing(404, "ScaledObject", "not found")
    seen = await observe(fake, SpeculativeModel.parse(resource()))
    assert seen.extras == {}


async def test_extras_are_found_by_kind_and_name() -> None:
    fake = FakeCluster(note("ScaledObject"))
    labels = {"specdec.dev/model": "pair"}
    fake.put({"kind": "ScaledObject", "metadata": {"name": "pair", "labels": labels}})
    seen = await observe(fake, SpeculativeModel.parse(resource()))
    assert set(seen.extras) == {("ScaledObject", "pair")}


async def test_another_resource_is_read_only_where_a_split_names_it() -> None:
    fake = FakeCluster({"kind": "SpeculativeModel", "metadata": {"name": "next"}})
    split = {"modelRef": {"name": "next"}, "percent": 10}
    for gateway, found in (({}, False), ({"split": split}, True)):
        networking = {"gateway": {"parentRefs": [{"name": "public"}], **gateway}}
        seen = await observe(fake, SpeculativeModel.parse(resource(networking=networking)))
        assert (seen.peer is not None) == found
        assert (("get", "SpeculativeModel", "next") in fake.calls) == found
