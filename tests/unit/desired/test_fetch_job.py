"""The fetch Job: sources, secrets and networks."""

import json

import pytest

from specdec.api.model import SpeculativeModel
from specdec.desired import fetch
from specdec.desired.pod import Volume
from support.simulated_cluster import resource

SHARED = Volume("models", "uid", single_node=False)


def test_a_token_is_a_reference_and_never_a_value() -> None:
    cr = resource()
    secret = {"name": "hub", "key": "token"}
    hub = {"huggingFace": {"repo": "a/b", "tokenSecretRef": secret}}
    cr["spec"]["target"]["source"] = hub
    spec = fetch.job(SpeculativeModel.parse(cr), SHARED, "i")["spec"]["template"]["spec"]
    env = {e["name"]: e for e in spec["containers"][0]["env"]}
    assert env["HF_TOKEN_TARGET"]["valueFrom"] == {"secretKeyRef": secret}
    assert "hub" not in json.dumps(spec["containers"][0]["command"])


def test_a_fetch_job_reaches_the_networks_of_the_installation_alone() -> None:
    """The allowed networks come from the operator's settings; a resource has no field for them."""
    model = SpeculativeModel.parse(resource())
    commands = [
        fetch.job(model, SHARED, "i", networks)["spec"]["template"]["spec"]["containers"][0][
            "command"
        ]
        for networks in ((), ("10.20.0.0/16", "fd12::/16"))
    ]
    assert "--allow" not in commands[0]
    assert commands[1] == [*commands[0], "--allow", "10.20.0.0/16", "--allow", "fd12::/16"]


def test_another_token_is_another_fetch_but_no_other_source() -> None:
    crs = [resource(), resource()]
    for cr, name in zip(crs, ("one", "two"), strict=True):
        hub = {"repo": "a/b", "tokenSecretRef": {"name": name}}
        cr["spec"]["target"]["source"] = {"huggingFace": hub}
    one, two = (SpeculativeModel.parse(cr) for cr in crs)
    assert fetch.job_name(one, SHARED) != fetch.job_name(two, SHARED)
    assert fetch.source_hashes(one, SHARED) == fetch.source_hashes(two, SHARED)


def test_beside_a_prebuilt_engine_no_weights_are_fetched() -> None:
    cr = resource(runtime={"backend": "TensorRT"})
    built = SpeculativeModel.parse(cr)
    cr["spec"]["target"]["engine"] = {"prebuilt": {"pvc": {"claimName": "e", "path": "e"}}}
    prebuilt = SpeculativeModel.parse(cr)

    assert "withoutWeights" not in fetch.plan(built, SHARED)
    assert fetch.plan(prebuilt, SHARED)["withoutWeights"] == ["target"]
    old, new = (fetch.source_hashes(model, SHARED) for model in (built, prebuilt))
    assert old["draft"] == new["draft"]
    # The hashes differ, so the weights are fetched if the engine is built again.
    assert old["target"] != new["target"]


SECRETS = {
    "s3": (
        {"uri": "s3://b/p", "credentialsSecretRef": {"name": "own"}},
        {
            "S3_ACCESS_TARGET": {"name": "own", "key": "AWS_ACCESS_KEY_ID"},
            "S3_SECRET_TARGET": {"name": "own", "key": "AWS_SECRET_ACCESS_KEY"},
            "S3_SESSION_TARGET": {"name": "own", "key": "AWS_SESSION_TOKEN", "optional": True},
        },
    ),
    "gcs": (
        {"uri": "gs://b/p", "credentialsSecretRef": {"name": "own", "key": "k.json"}},
        {"GCS_KEY_TARGET": {"name": "own", "key": "k.json"}},
    ),
    "oci": (
        {"reference": "r.example/m:1", "pullSecretRef": {"name": "own"}},
        {"OCI_CONFIG_TARGET": {"name": "own", "key": ".dockerconfigjson"}},
    ),
    "ngc": (
        {"resource": "o/t/m:1", "authSecretRef": {"name": "own"}},
        {"NGC_API_KEY_TARGET": {"name": "own", "key": "token"}},
    ),
}


@pytest.mark.parametrize("kind", SECRETS)
def test_secrets_of_every_source_reach_the_fetch_container_only(kind: str) -> None:
    source, expected = SECRETS[kind]
    cr = resource("None")
    cr["spec"]["target"]["source"] = {kind: source}
    pod = fetch.job(SpeculativeModel.parse(cr), SHARED, "i")["spec"]["template"]["spec"]
    env = pod["containers"][0]["env"]
    secrets = {e["name"]: e["valueFrom"]["secretKeyRef"] for e in env if "valueFrom" in e}
    assert secrets == expected
    plan = json.loads(pod["containers"][0]["command"][-1])
    # The rules on checkpoints read a part of the spec, without the names of Secrets.
    assert plan["spec"]["target"]["source"] == plan["models"]["target"]
    assert "SecretRef" not in json.dumps(plan)
    del plan["spec"]
    assert plan == {
        "models": {"target": {kind: {k: v for k, v in source.items() if "SecretRef" not in k}}}
    }


def test_heads_and_prebuilt_engines_are_fetched_too() -> None:
    cr = resource()
    cr["spec"]["target"]["engine"] = {"prebuilt": {"pvc": {"claimName": "e", "path": "t"}}}
    cr["spec"]["speculation"] |= {
        "method": "Medusa",
        "medusa": {"heads": {"huggingFace": {"repo": "a/b", "tokenSecretRef": {"name": "s"}}}},
    }
    pod = fetch.job(SpeculativeModel.parse(cr), SHARED, "i")["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert set(json.loads(container["command"][-1])["models"]) == {
        "target",
        "draft",
        "heads",
        "target-engine",
    }
    assert "HF_TOKEN_HEADS" in {e["name"] for e in container["env"]}
    mounts = {m["mountPath"] for m in container["volumeMounts"]}
    assert "/sources/target-engine" in mounts
