"""Two operators with the chart's settings: the leader works, and the standby takes over."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from chart.helm import CHART, NAMESPACE, RELEASE, ROOT, Helm, environment
from cluster import ControlPlane
from cluster.processes import TIMEOUT
from controlplane.operating import ACCOUNT, Object, Operator, until

pytestmark = pytest.mark.controlplane

# Lease duration: a busy machine still renews in time, and the test does not wait long.
SECONDS = 30
HERE = ("--namespace", NAMESPACE)
VALUES = {"leaderElection": {"enabled": True, "seconds": SECONDS}}


@pytest.fixture
def release(live: Helm, plane: ControlPlane) -> Iterator[Helm]:
    """Yield Helm with the installed chart; delete the resources at the end, but keep the CRD."""
    live("install", RELEASE, CHART, *HERE, values=VALUES)
    yield live
    plane.kubectl("delete", "specm", "--all", "-n", "team-a")
    plane.kubectl("delete", "lease", RELEASE, *HERE, "--ignore-not-found")
    live("uninstall", RELEASE, *HERE, "--wait", TIMEOUT)


def lease(plane: ControlPlane) -> Object:
    spec: Object = plane.get("lease", RELEASE, "-n", NAMESPACE)["spec"]
    return spec


def leads(operator: Operator) -> bool:
    return operator.metric("specdec_operator_leader") == 1


def reconciled(plane: ControlPlane, name: str, by: Operator) -> None:
    # The resource needs no children: admission refuses children of a new CRD for half a minute.
    body = yaml.safe_load((ROOT / "manifests/samples/reference-draft-target.yaml").read_text())
    body["metadata"] = {"name": name, "namespace": "team-a"}
    body["spec"]["storage"] = {"existingClaim": "nowhere"}
    plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(body))
    until(
        lambda: plane.get("specm", name, "-n", "team-a").get("status"),
        lambda: f"a status of {name}: {by.log_tail()}",
    )


def took_over(operator: Operator) -> None:
    until(lambda: leads(operator), lambda: f"another holder: {operator.log_tail()}")


def test_standby_takes_over_from_a_killed_and_a_stopped_holder(
    release: Helm, plane: ControlPlane, tmp_path: Path
) -> None:
    objects = release.template(VALUES)
    variables = {k: v for k, v in environment(objects).items() if k.startswith("SPECDEC_")}
    account = plane.service_account(*ACCOUNT)
    with ExitStack() as both:
        first, second = (
            both.enter_context(Operator(account, tmp_path / name, **variables))
            for name in ("first", "second")
        )
        reconciled(plane, "before", by=first)
        assert leads(first)
        assert not leads(second)
        assert second.healthy() == 200
        assert second.reconciles() == second.writes() == 0
        assert "standing by: " in second.log_tail()

        first.kill()
        last = lease(plane)["renewTime"]
        took_over(second)
        assert "did not renew it in time" in second.log_tail()
        # The second operator took over after the lease expired. Both operators share a clock.
        taken = datetime.fromisoformat(lease(plane)["acquireTime"])
        assert (taken - datetime.fromisoformat(last)).total_seconds() >= SECONDS
        reconciled(plane, "between", by=second)

        first.start()
        assert not leads(first)
        assert second.stop() == 0
        took_over(first)
        assert first.log.read_text().count("it was free") == 2
        assert lease(plane)["leaseTransitions"] == 2
        reconciled(plane, "after", by=first)

        change = '{"spec": {"holderIdentity": "somebody"}}'
        plane.kubectl("patch", "lease", RELEASE, *HERE, "--type=merge", "-p", change)
        assert first.wait() == 1
        log = first.log.read_text()
        assert "it lost Lease specdec-system/specdec-operator: somebody holds it" in log
        assert "Traceback" not in log


def test_documented_standby_values_match_the_chart(helm: Helm) -> None:
    text = (ROOT / "docs" / "install.md").read_text()
    (values,) = re.findall(r"```yaml\n# standby.yaml\n(.*?)```", text, re.DOTALL)
    variables = environment(helm.template(yaml.safe_load(values)))
    assert variables["SPECDEC_LEASE_SECONDS"] == "15"
    assert f"the Lease `{variables['SPECDEC_LEASE'].partition('/')[2]}`" in text
