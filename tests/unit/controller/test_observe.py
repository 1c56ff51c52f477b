"""Which objects and logs `observe` reads, and what happens when a read fails."""

import asyncio
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from specdec import cluster
from specdec.api.kinds import OPTIONAL_KINDS
from specdec.api.model import SpeculativeModel
from specdec.cluster import Cluster, Missing, Rejected, Transient
from specdec.controller.observe import observe
from support.fake_cluster import FakeCluster
from support.simulated_cluster import resource


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


SHARED = {
    "kind": "Job",
    "metadata": {"name": "build-1", "labels": {"models.specdec.dev/pair": ""}},
}


async def test_only_logs_of_running_build_and_fetch_pods_are_read() -> None:
    fake = FakeCluster(*PODS)
    fake.logs = {"building": "progress phase=build percent=7", "fetching": "x"}
    observed = await observe(fake, SpeculativeModel.parse(resource()))
    assert observed.logs == fake.logs


async def test_pods_are_listed_after_the_jobs_that_they_belong_to() -> None:
    """A Job that ends between the two lists then has pods that have ended, never the reverse."""
    fake = FakeCluster(SHARED)
    await observe(fake, SpeculativeModel.parse(resource()))
    lists = [(kind, selector) for verb, kind, selector in fake.calls if verb == "list"]
    last_jobs = max(i for i, (kind, _) in enumerate(lists) if kind == "Job")
    of_jobs = ("specdec.dev/model=pair", "batch.kubernetes.io/job-name in (build-1)")
    pods = [i for i, (kind, selector) in enumerate(lists) if selector in of_jobs and kind == "Pod"]
    assert len(pods) == 2
    assert min(pods) > last_jobs


async def test_events_are_read_only_of_unfinished_jobs_without_a_pod() -> None:
    own = {"specdec.dev/model": "pair"}
    jobs = [
        {"kind": "Job", "metadata": {"name": name, "labels": own}, "status": status}
        for name, status in (
            ("refused", {}),
            ("running", {}),
            ("done", {"conditions": [{"type": "Complete", "status": "True"}]}),
        )
    ]
    labels = {**own, "batch.kubernetes.io/job-name": "running"}
    started = pod("running-1", "verify", "Running")
    started["metadata"]["labels"] |= labels
    fake = FakeCluster(*jobs, started)
    fake.events_of = {"uid-refused": ("an earlier reason", "exceeded quota")}
    observed = await observe(fake, SpeculativeModel.parse(resource()))
    assert observed.refusals == {"refused": "exceeded quota"}
    assert [call for call in fake.calls if call[1] == "Event"] == [
        ("list", "Event", "uid-refused FailedCreate")
    ]
    fake.fail["list", "Event"] = Rejected(403, "Event", "forbidden")
    assert (await observe(fake, SpeculativeModel.parse(resource()))).refusals == {}


async def test_refusal_of_the_next_pod_is_read_of_jobs_whose_pods_failed() -> None:
    """The Job reported another attempt after a failure, as long as its pods were refused."""
    labels = {"specdec.dev/model": "pair", "batch.kubernetes.io/job-name": "build"}
    failed = [pod(f"build-{n}", "engine", "Failed") for n in (1, 2)]
    for n, item in enumerate(failed):
        item["metadata"] |= {"labels": labels, "creationTimestamp": f"2026-01-02T03:04:0{n}Z"}
    job = {"kind": "Job", "metadata": {"name": "build", "labels": labels}, "status": {}}
    fake = FakeCluster(job, *failed)
    fake.events_of = {"uid-build": ("exceeded quota",)}
    observed = await observe(fake, SpeculativeModel.parse(resource()))
    assert observed.refusals == {"build": "exceeded quota"}
    # An event before the newest pod is about an earlier attempt.
    assert ("list", "Event", "uid-build FailedCreate 2026-01-02T03:04:01Z") in fake.calls


async def test_last_failed_probe_is_read_of_servers_that_are_not_ready_any_more() -> None:
    failing, starting = serving("failing", ready=False), serving("starting", ready=False)
    failing["status"]["containerStatuses"][0] |= {"started": True, "lastState": {}}
    starting["status"]["containerStatuses"][0] |= {"started": False, "lastState": {}}
    fake = FakeCluster(failing, starting, serving("fine", ready=True))
    fake.logs = dict.fromkeys(("failing", "starting"), "")
    fake.events_of = {"failing": ("Readiness probe failed: no token",)}
    observed = await observe(fake, SpeculativeModel.parse(resource()))
    assert observed.probes == {"failing": "Readiness probe failed: no token"}
    assert [call for call in fake.calls if call[1] == "Event"] == [
        ("list", "Event", "failing Unhealthy")
    ]


async def test_ready_endpoints_are_counted_per_service() -> None:
    labels = {"specdec.dev/model": "pair"}
    service = {"kind": "Service", "metadata": {"name": "pair", "labels": labels}}
    slices = [
        {
            "kind": "EndpointSlice",
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service_name}},
            "endpoints": endpoints,
        }
        for name, service_name, endpoints in (
            ("a", "pair", [{"conditions": {"ready": True}}, {"conditions": {"ready": False}}]),
            ("b", "pair", [{"addresses": ["10.0.0.1"]}]),
            ("c", "pair-draft", [{"conditions": {"ready": True}}]),
            ("d", "pair", None),
        )
    ]
    observed = await observe(FakeCluster(service, *slices), SpeculativeModel.parse(resource()))
    assert observed.endpoints == {"pair": 2}


async def test_log_of_the_certificate_container_is_read() -> None:
    secure = pod("secure", "server", "Running")
    secure["spec"] = {"containers": [{"name": "server"}, {"name": "certificate"}]}
    fake = FakeCluster(secure)
    fake.logs = {"secure": "{}"}
    observed = await observe(fake, SpeculativeModel.parse(resource()))
    assert observed.logs == fake.logs
    assert ("log", "Pod", "secure/certificate") in fake.calls


def serving(name: str, *, ready: bool, state: str = "running") -> dict[str, Any]:
    server = pod(name, "server", "Running")
    status = {"name": "server", "state": {state: {}}, "ready": ready}
    return {**server, "status": {**server["status"], "containerStatuses": [status]}}


async def test_log_of_a_server_is_read_until_it_is_ready() -> None:
    """The last lines of the log name the files that the server waits for."""
    starting = serving("starting", ready=False)
    starting["spec"] = {"containers": [{"name": "server"}, {"name": "certificate"}]}
    crashed = serving("crashed", ready=False, state="waiting")
    fake = FakeCluster(starting, serving("ready", ready=True), crashed)
    fake.logs = {"starting": "{}"}
    observed = await observe(fake, SpeculativeModel.parse(resource()))
    assert observed.logs == {"starting": "{}", "starting/server": "{}"}
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
async def test_crash_log_is_that_of_the_ended_run(
    state: dict[str, Any], last: dict[str, Any], target: str | None
) -> None:
    ended = pod("serving", "server", "Running")
    status = {"name": "server", "ready": False, "state": state, "lastState": last}
    ended["status"]["containerStatuses"] = [status]
    fake = FakeCluster(ended)
    fake.logs = {"serving": "E"}
    observed = await observe(fake, SpeculativeModel.parse(resource()))
    assert observed.crashes == ({"serving": "E"} if target else {})
    read = [call[2] for call in fake.calls if call[0] == "log"]
    # The current log of a starting server is also read, because it names damaged files.
    loading = ["serving/server"] if "running" in state else []
    assert read == loading + ([target] if target else [])


async def test_failed_log_request_yields_an_empty_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fake = FakeCluster(*PODS)
    caplog.set_level("DEBUG")
    fake.fail["log", "Pod"] = Transient("the kubelet is down")
    observed = await observe(fake, SpeculativeModel.parse(resource()))
    assert observed.logs == {"building": "", "fetching": ""}
    assert "no log of pod building: the kubelet is down" in caplog.text
    assert {record.levelname for record in caplog.records} == {"DEBUG"}


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Yield an API server with two pods: a pod with a log, and a pod whose log never ends."""

    never = asyncio.Event()

    async def respond(request: web.Request) -> web.StreamResponse:
        if request.match_info["pod"] == "stuck":
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"never ")
            await never.wait()
            return response
        if request.match_info["pod"] != "building":
            return web.json_response({"message": "no such pod"}, status=404)
        name = request.query.get("container", "")
        return web.Response(
            body=f"{request.query['tailLines']} lines{name} \xff".encode("latin-1")
        )

    app = web.Application()
    app.router.add_get("/api/v1/namespaces/demo/pods/{pod}/log", respond)
    test_server = TestServer(app)
    await test_server.start_server()
    monkeypatch.setattr(cluster, "LOG_TIMEOUT", 0.2)
    settings = Configuration(host=str(test_server.make_url("")).rstrip("/"))
    async with ApiClient(settings) as client:
        yield Cluster(client)
    never.set()
    await test_server.close()


async def test_log_is_decoded_and_limited_to_lines(server: Cluster) -> None:
    assert await server.log("demo", "building", 40) == "40 lines \ufffd"
    assert await server.log("demo", "building", 1, " of one") == "1 lines of one \ufffd"


async def test_log_request_has_a_timeout_and_raises_cluster_errors(server: Cluster) -> None:
    with pytest.raises(Transient, match="did not answer about Pod stuck"):
        await server.log("demo", "stuck", 40)
    with pytest.raises(Missing, match="no such pod"):
        await server.log("demo", "missing", 40)


def service_with_kinds(kinds: str) -> dict[str, Any]:
    """Return the resource's Service, with an annotation that lists optional kinds."""
    labels = {"specdec.dev/model": "pair"}
    meta = {"name": "pair", "labels": labels, "annotations": {"specdec.dev/optional-kinds": kinds}}
    return {"kind": "Service", "metadata": meta}


def listed_kinds(fake: FakeCluster) -> set[str]:
    return {kind for verb, kind, _ in fake.calls if verb == "list"} & OPTIONAL_KINDS.keys()


async def test_optional_kinds_are_listed_only_where_they_may_exist() -> None:
    scaling = {"maxReplicas": 2, "metrics": [{"type": "Cpu", "target": "70"}]}
    for services, serving, kinds in (
        # Before there is a Service that names kinds, policies of Jobs may exist.
        ((), {}, {"NetworkPolicy"}),
        ((service_with_kinds(""),), {}, set()),
        ((service_with_kinds("ScaledObject,Sandwich"),), {}, {"ScaledObject"}),
        ((), {"scaling": scaling}, {"HorizontalPodAutoscaler", "NetworkPolicy"}),
    ):
        fake = FakeCluster(*services)
        await observe(fake, SpeculativeModel.parse(resource(serving=serving)))
        assert listed_kinds(fake) == kinds


async def test_missing_kind_has_no_objects() -> None:
    fake = FakeCluster(service_with_kinds("ScaledObject"))
    fake.fail["list", "ScaledObject"] = Missing(404, "ScaledObject", "not found")
    observed = await observe(fake, SpeculativeModel.parse(resource()))
    assert observed.optional_objects == {}


async def test_optional_objects_are_indexed_by_kind_and_name() -> None:
    fake = FakeCluster(service_with_kinds("ScaledObject"))
    labels = {"specdec.dev/model": "pair"}
    fake.put({"kind": "ScaledObject", "metadata": {"name": "pair", "labels": labels}})
    observed = await observe(fake, SpeculativeModel.parse(resource()))
    assert set(observed.optional_objects) == {("ScaledObject", "pair")}


async def test_split_peer_is_read_only_if_a_split_names_it() -> None:
    fake = FakeCluster({"kind": "SpeculativeModel", "metadata": {"name": "next"}})
    split = {"modelRef": {"name": "next"}, "percent": 10}
    for gateway, expected in (({}, False), ({"split": split}, True)):
        networking = {"gateway": {"parentRefs": [{"name": "public"}], **gateway}}
        observed = await observe(fake, SpeculativeModel.parse(resource(networking=networking)))
        assert (observed.peer is not None) == expected
        assert (("get", "SpeculativeModel", "next") in fake.calls) == expected


def pruning(name: str, phase: str, *arguments: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/component": "prune", "specdec.dev/claim": "pair-models"}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "demo", "uid": name, "labels": labels},
        "spec": {"containers": [{"name": "prune", "command": ["python", *arguments]}]},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("pod_", "name"),
    [
        (pruning("deletes", "Running", "--delete"), "deletes"),
        (pruning("starts", "Pending", "--delete"), "starts"),
        (pruning("ended", "Succeeded", "--delete"), ""),
        (pruning("lists", "Running"), ""),
    ],
)
async def test_pod_that_deletes_on_the_claim_is_observed(pod_: dict[str, Any], name: str) -> None:
    observed = await observe(FakeCluster(pod_), SpeculativeModel.parse(resource()))
    assert observed.pruning == name


async def test_other_resources_are_read_only_if_something_is_unused() -> None:
    body = resource(revisionHistoryLimit=1)
    fake = FakeCluster(body)
    assert (await observe(fake, SpeculativeModel.parse(body))).neighbours is None
    assert ("list", "SpeculativeModel", "") not in fake.calls
    body["status"] = {"unused": {"engines": ["e"]}}
    assert (await observe(fake, SpeculativeModel.parse(body))).neighbours is not None
    assert ("list", "SpeculativeModel", "") in fake.calls
    body["spec"]["revisionHistoryLimit"] = None
    assert (await observe(fake, SpeculativeModel.parse(body))).neighbours is None
