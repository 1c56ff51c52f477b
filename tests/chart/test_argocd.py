"""Argo CD's scripts on statuses of every phase, and its resources compared with the chart."""

import json
import re

import pytest
import yaml

from chart.helm import CHART, NAMESPACE, RELEASE, ROOT, Helm, Object, operator
from chart.judging import judged
from chart.lua import ARGOCD, act, actions, health
from specdec.api.reasons import REASONS, ReadyReason, Reason, Severity
from support.golden_cases import CASES, generated
from support.simulated_cluster import World, fetched, resource, waiting


def shown(status: Object, generation: int = 1) -> tuple[str, str]:
    return health({"metadata": {"generation": generation}, "spec": {}, "status": status})


def of(world: World) -> Object:
    """Return the status with `observedGeneration`, as the operator writes it."""
    return {**world.cr["status"], "observedGeneration": 1}


def failing(reason: str, phase: str) -> Object:
    ready = {"type": "Ready", "status": "False", "reason": reason, "message": "why"}
    return {"phase": phase, "observedGeneration": 1, "conditions": [ready]}


@pytest.mark.parametrize("case", CASES)
def test_every_golden_status_has_its_health(case: str) -> None:
    status = generated(case).status
    expected = {"Serving": "Healthy", "Suspended": "Suspended"}[status["phase"]]
    assert shown(status)[0] == expected


def test_a_resource_is_progressing_in_every_phase_before_serving() -> None:
    world = World(resource())
    assert health(world.cr)[0] == "Progressing"
    phases = []

    def step() -> None:
        world.step()
        phases.append(world.cr["status"]["phase"])
        assert shown(of(world))[0] == ("Healthy" if phases[-1] == "Serving" else "Progressing")

    step()
    world.bind()
    for component in ("fetch", "engine", "publish"):
        step()
        for name in world.named(component):
            world.finish(name, fetched() if component == "fetch" else {})
    step()
    world.serve()
    step()
    assert phases == ["Pending", "Fetching", "Building", "Publishing", "Starting", "Serving"]
    status, message = shown(of(world))
    assert (status, message.split(":")[0]) == ("Healthy", "Serving")


def test_a_permanent_failure_is_degraded() -> None:
    world = World(resource())
    world.step()
    world.bind()
    world.step()
    world.fail(world.job("fetch"), json.dumps({"reason": "AuthFailed", "message": "no token"}))
    world.step()
    status, message = shown(of(world))
    assert status == "Degraded"
    assert (
        message == f"{world.condition('Ready')['reason']}: {world.condition('Ready')['message']}"
    )


def test_pod_that_cannot_start_is_degraded() -> None:
    world = World(resource())
    world.step()
    world.bind()
    world.step()
    world.pod(world.job("fetch"), waiting("ImagePullBackOff", "no such image"))
    world.step()
    assert world.condition("Ready")["reason"] == "ImagePullFailed"
    assert world.cr["status"]["phase"] != "Failed"
    assert shown(of(world))[0] == "Degraded"


@pytest.mark.parametrize("reason", [reason for reason in REASONS if reason.health])
def test_every_reason_of_ready_has_its_health(reason: Reason) -> None:
    phase = "Failed" if reason.severity is Severity.FAILED else "Starting"
    status = failing(str(reason), phase)
    if reason is ReadyReason.SERVING:
        status["conditions"][0]["status"] = "True"
    assert shown(status) == (reason.health, f"{reason}: why")


def test_a_recorded_status_with_the_wrong_health_fails() -> None:
    def body(reason: str, phase: str, generation: int = 1) -> Object:
        return {
            "metadata": {"generation": generation},
            "status": failing(reason, phase),
            "spec": {},
        }

    blocked, patient = body("CrashLoop", "Starting"), body("ClaimNotFound", "Pending")
    old = body("AuthFailed", "Failed", 2)
    assert judged([blocked, patient, old]) == {
        ("Starting", "Degraded"),
        ("Pending", "Progressing"),
    }
    with pytest.raises(AssertionError, match="Degraded"):
        judged([body("CrashLoop", "Serving")])


def test_the_status_of_an_old_generation_is_progressing() -> None:
    status = generated("reference-baseline").status
    assert shown(status, generation=1)[0] == "Healthy"
    assert shown(status, generation=2)[0] == "Progressing"
    assert shown({"phase": "Pending", "observedGeneration": 1})[0] == "Progressing"
    assert shown({"observedGeneration": 1, "conditions": []})[0] == "Progressing"


def test_actions_change_only_suspend() -> None:
    cr = resource()
    offered = actions(cr)
    assert (offered["suspend"]["disabled"], offered["resume"]["disabled"]) == (False, True)
    paused = act("suspend", cr)
    assert paused == {**cr, "spec": {**cr["spec"], "suspend": True}}
    offered = actions(paused)
    assert (offered["suspend"]["disabled"], offered["resume"]["disabled"]) == (True, False)
    assert act("resume", paused) == {**cr, "spec": {**cr["spec"], "suspend": False}}


def test_verify_now_requests_another_run_and_changes_nothing_else() -> None:
    cr = resource()
    assert not actions(cr)["verify"]["disabled"]
    asked = {**cr["spec"].get("verification", {}), "run": "1"}
    once = act("verify", cr)
    assert once == {**cr, "spec": {**cr["spec"], "verification": asked}}
    assert act("verify", once)["spec"]["verification"]["run"] == "2"
    named = {**cr, "spec": {**cr["spec"], "verification": {"mode": "Gate", "run": "after lunch"}}}
    assert act("verify", named)["spec"]["verification"] == {"mode": "Gate", "run": "1"}

    for changed in ({"verification": {"mode": "Disabled"}}, {"speculation": {"method": "None"}}):
        assert actions({**cr, "spec": {**cr["spec"], **changed}})["verify"]["disabled"]
    assert actions(act("suspend", cr))["verify"]["disabled"]


def test_an_application_reports_its_own_health() -> None:
    kind = "argoproj.io_Application"
    assert health({"metadata": {}}, kind)[0] == "Progressing"
    application = {"status": {"health": {"status": "Degraded", "message": "x"}}}
    assert health(application, kind) == ("Degraded", "x")


def test_application_of_the_operator_installs_the_chart(helm: Helm) -> None:
    app = yaml.safe_load((ARGOCD / "operator.yaml").read_text())
    source, policy = app["spec"]["source"], app["spec"]["syncPolicy"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (source["chart"], source["targetRevision"]) == (chart["name"], chart["version"])
    # README has the same address with a scheme; Argo CD omits the scheme of a registry.
    assert f"oci://{source['repoURL']}/{source['chart']}" in (ROOT / "README.md").read_text()
    assert source["helm"]["releaseName"] == RELEASE
    assert app["spec"]["destination"]["namespace"] == NAMESPACE
    (values,) = re.findall(r"valuesObject: (\{.*\})", (ARGOCD / "operator.yaml").read_text())
    image = operator(helm.template(yaml.safe_load(values)))["image"]
    assert image.startswith("registry.example.com/specdec/operator:")
    namespace = yaml.safe_load((ROOT / "manifests/install/namespace.yaml").read_text())
    assert policy["managedNamespaceMetadata"]["labels"] == namespace["metadata"]["labels"]


def test_root_creates_both_applications() -> None:
    """One Application has both, because sync waves order only objects of the same Application."""
    body = yaml.safe_load((ARGOCD / "root.yaml").read_text())
    included = body["spec"]["source"]["directory"]["include"]
    assert included == "{operator.yaml,models.yaml}"
    assert all((ARGOCD / name).is_file() for name in included.strip("{}").split(","))
    assert body["spec"]["destination"]["namespace"] == body["metadata"]["namespace"] == "argocd"


def test_models_sync_after_the_operator_and_ignore_scaled_fields() -> None:
    waves = {}
    for name in ("operator", "models"):
        body = yaml.safe_load((ARGOCD / f"{name}.yaml").read_text())
        waves[name] = int(body["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"])
    assert waves["operator"] < waves["models"]
    spec = body["spec"]["template"]["spec"]
    (ignored,) = spec["ignoreDifferences"]
    assert (ignored["group"], ignored["kind"]) == ("specdec.dev", "SpeculativeModel")
    crd = (ROOT / "crds" / "speculativemodels.yaml").read_text()
    for pointer in ignored["jsonPointers"]:
        assert re.search(rf"^ +{pointer.rsplit('/', 1)[1]}:( &run)?$", crd, re.MULTILINE), pointer
    assert "RespectIgnoreDifferences=true" in spec["syncPolicy"]["syncOptions"]
