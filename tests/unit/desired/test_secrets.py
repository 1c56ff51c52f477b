"""Only the container that needs a secret has it, and only by reference."""

import json
from typing import Any

from specdec.api.model import SpeculativeModel
from specdec.desired import fetch
from specdec.desired.pod import Volume
from support.simulated_cluster import World, fetched, resource

VOLUME = Volume("models", "uid", single_node=False)
REACH = {
    "caConfigMapRef": {"name": "corporate-ca", "key": "bundle.pem"},
    "proxySecretRef": {"name": "proxy"},
}
HUB = {"huggingFace": {"repo": "example/big", "tokenSecretRef": {"name": "hub", "key": "t"}}}


def world(**spec: Any) -> World:
    cr = resource("None", **spec)
    cr["spec"]["target"]["source"] = HUB
    simulated = World(cr)
    results = fetched()
    results["models"] = {"target": results["models"]["target"]}
    simulated.settle(lambda component: results if component == "fetch" else {})
    return simulated


def job(**spec: Any) -> Any:
    cr = resource("None", **spec)
    return fetch.job(SpeculativeModel.parse(cr), VOLUME, "image")


def test_only_the_fetch_job_sees_a_token_a_proxy_or_an_authority() -> None:
    simulated = world(fetch=REACH)
    seen = {
        (body["kind"], name.split("-")[1] if "-" in name else name)
        for (_, name), body in simulated.ever_applied.items()
        if any(word in json.dumps(body) for word in ('"hub"', '"proxy"', '"corporate-ca"'))
    }
    assert seen == {("Job", "fetch")}
    assert "secretKeyRef" not in json.dumps(simulated.cr["status"])


def test_proxies_are_references_and_only_the_first_is_required() -> None:
    (container,) = job(fetch=REACH)["spec"]["template"]["spec"]["containers"]
    env = {item["name"]: item for item in container["env"]}
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"):
        assert "value" not in env[name]
        reference = env[name]["valueFrom"]["secretKeyRef"]
        assert (reference["name"], reference["key"]) == ("proxy", name)
        assert reference.get("optional", False) is (name != "HTTPS_PROXY")


def test_the_authorities_are_a_file_that_the_program_gets() -> None:
    spec = job(fetch=REACH)["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    (mount,) = [item for item in container["volumeMounts"] if item["name"] == "authorities"]
    (volume,) = [item for item in spec["volumes"] if item["name"] == "authorities"]
    assert mount["readOnly"] is True
    items = [{"key": "bundle.pem", "path": "ca.crt"}]
    assert volume["configMap"] == {"name": "corporate-ca", "items": items}
    env = {item["name"]: item.get("value") for item in container["env"]}
    assert env["SSL_CERT_FILE"] == f"{mount['mountPath']}/ca.crt"


def test_another_proxy_is_another_job_and_no_proxy_keeps_the_name() -> None:
    usual = job()["metadata"]["name"]
    assert job(fetch={})["metadata"]["name"] == usual
    assert job(fetch=REACH)["metadata"]["name"] != usual
