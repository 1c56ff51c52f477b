"""Changes by TLS in the objects: mounts, ports and connections of clients."""

import json
from typing import Any

import pytest

from specdec.api.model import SpeculativeModel
from specdec.desired import measurement, network, policy
from support.simulated_cluster import World, resource, settled
from unit.pipeline.test_group import served
from unit.pipeline.test_two_servers import two_servers

OPEN: dict[str, Any] = {"tls": {"secretName": "pair-tls"}}
KNOWN: dict[str, Any] = {
    "tls": {
        "secretName": "pair-tls",
        "clientCA": {"name": "clients", "key": "bundle.pem"},
        "clientSecretName": "verifier",
    }
}
Json = dict[str, Any]


def model(serving: Json, **spec: Any) -> SpeculativeModel:
    return SpeculativeModel.parse(resource(serving=serving, **spec))


def pod(body: Json) -> Json:
    spec: Json = body["spec"]["template"]["spec"]
    return spec


def parts(spec: Json, name: str, of: int = 0) -> tuple[Json, Json]:
    """Return the mount and the volume of this name in a container; the mount must be read-only."""
    container = spec["containers"][of]
    (mount,) = [item for item in container["volumeMounts"] if item["name"] == name]
    (volume,) = [item for item in spec["volumes"] if item["name"] == name]
    assert mount["readOnly"] is True
    return mount, volume


def keys(volume: Json) -> dict[str, str]:
    source = volume.get("secret") or volume["configMap"]
    return {item["key"]: item["path"] for item in source["items"]}


def job(world: World, component: str = "verify") -> Json:
    body: Json = world.ever_applied["Job", world.job(component)]
    return body


def plan(body: Json) -> Json:
    (container,) = pod(body)["containers"]
    plan_: Json = json.loads(container["command"][-1])
    return plan_


def test_a_server_mounts_what_its_arguments_name() -> None:
    world = settled(resource(serving=KNOWN))
    assert world.deployment is not None
    spec = pod(world.deployment)
    container = spec["containers"][0]
    given = dict(a.split("=", 1) for a in container["command"] if a.startswith("--grpc-"))
    mount, volume = parts(spec, "tls")
    clients_mount, clients = parts(spec, "clients")
    named = {
        f"{at['mountPath']}/{path}"
        for at, one in ((mount, volume), (clients_mount, clients))
        for path in keys(one).values()
    }
    files = ("--grpc-server-cert", "--grpc-server-key", "--grpc-root-cert")
    assert {given[file] for file in files} == named
    assert (volume["secret"]["secretName"], clients["configMap"]["name"]) == (
        "pair-tls",
        "clients",
    )
    assert clients["configMap"]["items"] == [{"key": "bundle.pem", "path": "ca.crt"}]
    # Only root and the pod's group may read the key.
    assert volume["secret"]["defaultMode"] == 0o440


def test_the_certificate_container_cannot_read_the_key() -> None:
    """The watcher mounts whole folders: the kubelet never updates a file mounted by subPath."""
    world = settled(resource(serving=KNOWN))
    assert world.deployment is not None
    spec = pod(world.deployment)
    server, watcher = spec["containers"]
    mount, volume = parts(spec, "certificate", 1)
    clients_mount, clients = parts(spec, "clients", 1)
    assert keys(volume) == {"tls.crt": "tls.crt"}
    assert "subPath" not in json.dumps(watcher)
    assert watcher["command"][-2:] == [
        f"{mount['mountPath']}/tls.crt",
        f"{clients_mount['mountPath']}/{keys(clients)['bundle.pem']}",
    ]
    assert "tls.key" not in json.dumps(watcher)
    assert "models" not in {item["name"] for item in watcher["volumeMounts"]}
    assert watcher["image"] == server["image"]
    assert watcher["securityContext"] == server["securityContext"]
    assert watcher["resources"]["requests"] == watcher["resources"]["limits"]


def test_a_missing_secret_is_seen_in_the_status_of_the_pod() -> None:
    """A required variable with the certificate reveals a missing Secret, not the volume."""
    world = settled(resource(serving=OPEN))
    assert world.deployment is not None
    spec = pod(world.deployment)
    (env,) = [item for item in spec["containers"][0]["env"] if "valueFrom" in item]
    assert env["valueFrom"] == {"secretKeyRef": {"name": "pair-tls", "key": "tls.crt"}}
    assert parts(spec, "tls")[1]["secret"]["optional"] is True


def test_measuring_jobs_see_only_the_public_part() -> None:
    body = job(settled(resource(serving=OPEN)))
    mount, volume = parts(pod(body), "tls")
    assert (volume["secret"]["secretName"], keys(volume)) == ("pair-tls", {"ca.crt": "ca.crt"})
    assert plan(body)["tls"] == {"authority": f"{mount['mountPath']}/ca.crt"}
    assert "tls.key" not in json.dumps(body)


def test_measuring_jobs_have_a_client_certificate_where_servers_require_one() -> None:
    body = job(settled(resource(serving=KNOWN)))
    assert keys(parts(pod(body), "tls")[1]) == {"ca.crt": "ca.crt"}
    mount, volume = parts(pod(body), "client")
    assert volume["secret"]["secretName"] == "verifier"
    assert keys(volume) == {"tls.crt": "tls.crt", "tls.key": "tls.key"}
    settings = plan(body)["tls"]
    assert settings["clientSecret"] == "verifier"
    assert (settings["certificate"], settings["key"]) == tuple(
        f"{mount['mountPath']}/{file}" for file in ("tls.crt", "tls.key")
    )


def test_no_other_container_sees_the_secrets() -> None:
    world = settled(resource(serving=KNOWN))
    seen = {
        kind if kind != "Job" else body["metadata"]["labels"]["app.kubernetes.io/component"]
        for (kind, _), body in world.ever_applied.items()
        if any(f'"{name}"' in json.dumps(body) for name in ("pair-tls", "verifier", "clients"))
    }
    assert seen == {"Deployment", "verify"}
    assert "pair-tls" not in json.dumps(world.cr["status"])


def test_clients_find_the_encrypted_port_alone() -> None:
    assert network.url(model({})) == "http://pair.demo.svc:8000"
    assert network.url(model(OPEN)) == "grpcs://pair.demo.svc:8001"
    plain = {port["name"]: port for port in network.service(model({}))["spec"]["ports"]}
    ports = {port["name"]: port for port in network.service(model(OPEN))["spec"]["ports"]}
    assert ports == {
        "grpc": {**plain["grpc"], "appProtocol": "tls"},
        "metrics": plain["metrics"],
    }
    networking = {"networkPolicy": {"mode": "Enabled"}}
    (body,) = policy.objects(model(OPEN, networking=networking))
    allowed = [[port["port"] for port in rule["ports"]] for rule in body["spec"]["ingress"]]
    assert allowed == [[8001], [8002]]


def test_both_of_two_servers_have_tls() -> None:
    world = settled(two_servers(**OPEN))
    for name in ("pair", "pair-draft"):
        spec = pod(world.deployments[name])
        assert "--grpc-use-ssl=true" in spec["containers"][0]["command"]
        assert keys(parts(spec, "tls")[1]) == {"tls.crt": "tls.crt", "tls.key": "tls.key"}
        (port,) = [p for p in world.services[name]["spec"]["ports"] if p["name"] == "grpc"]
        assert port["appProtocol"] == "tls"


def test_in_a_group_only_the_leader_has_it() -> None:
    group = served(**KNOWN).group
    assert group is not None
    made = group["spec"]["leaderWorkerTemplate"]
    leader, worker = (made[f"{part}Template"]["spec"] for part in ("leader", "worker"))
    container, watcher = leader["containers"]
    assert container["command"].count("--grpc-use-ssl=true") == 1
    assert watcher["name"] == "certificate"
    assert len(worker["containers"]) == 1
    parts(leader, "tls")
    parts(leader, "clients")
    assert "pair-tls" not in json.dumps(worker)
    assert '"clients"' not in json.dumps(worker)
    # The worker still has the variables and volumes that every rank needs.
    assert {item["name"] for item in worker["containers"][0]["env"]} >= {"PMIX_MCA_gds"}
    assert "shm" in {item["name"] for item in worker["containers"][0]["volumeMounts"]}


@pytest.mark.parametrize("which", ["verification_hash", "benchmark_hash"])
def test_a_change_of_tls_measures_again(which: str) -> None:
    digest = getattr(measurement, which)
    hashes = {digest(model(serving), "repository", "image", 4) for serving in ({}, OPEN, KNOWN)}
    assert len(hashes) == 3


def test_no_object_mentions_tls_without_it() -> None:
    world = settled(resource(serving={}))
    assert not [body for body in world.ever_applied.values() if "tls" in json.dumps(body)]
