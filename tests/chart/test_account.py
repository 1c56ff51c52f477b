"""Compares the chart's permissions with the operator's requests in a tour of all features.

The API server's audit log records these requests. A refusal shows a missing permission, and no
request uses an unnecessary one. `make campaign NAME=rights` removes each permission in turn.
"""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
import yaml

from chart.helm import NAMESPACE, RELEASE, Helm, Object, single
from chart.judging import BRIEF, HEALTH, judged
from chart.touring import ELSEWHERE, MODES, OWNING, USER, Toured, define, take, toured, unused
from cluster import ClusterError, ControlPlane
from controlplane import tour
from controlplane.audit import UNOWNED, granted
from controlplane.commanding import account, may, specdec
from controlplane.operating import Lab, until

pytestmark = pytest.mark.controlplane


@pytest.fixture(scope="module")
def kinds(live: Helm, plane: ControlPlane) -> None:
    define(live, plane)


@pytest.fixture(scope="module", params=MODES)
def done(
    request: pytest.FixtureRequest,
    kinds: None,
    live: Helm,
    plane: ControlPlane,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Toured]:
    """Yield the result of a tour in one of the chart's modes; the operator still runs."""
    folder = tmp_path_factory.mktemp(f"tour-{request.param}")
    with toured(live, plane, folder, request.param) as result:
        yield result


def test_every_permission_is_used_and_none_is_missing(done: Toured) -> None:
    given = granted(done.roles)
    assert done.refused == []
    assert unused(done.roles, done.used) == set()
    assert done.used <= given, "it was allowed something by a role that is not the chart's"
    assert not {part for right in given for part in right if "*" in part}
    kind = "ClusterRole" if done.everywhere else "Role"
    expected = {(RELEASE, kind), (f"{RELEASE}-pod", "Role")}
    assert {(role["metadata"]["name"], role["kind"]) for role in done.roles} == expected
    assert len(given) > 70


def test_tour_passes_every_phase_with_the_health_of_each_status(done: Toured) -> None:
    """Argo CD's script runs on the statuses that the running operator wrote."""
    seen = {phase for phase, _ in judged(done.tour.seen)}
    assert seen | {BRIEF} == set(HEALTH)


def test_operator_reconciles_only_in_watched_namespaces(done: Toured) -> None:
    lab = done.lab
    argv = ("get", "specm", lab.namespace, "-n", ELSEWHERE, "-o", "json")
    assert ("status" in json.loads(lab.plane.kubectl(*argv))) == done.everywhere
    require_hook(single(done.objects, "Pod"), lab.operator.metrics_url)


def test_roles_of_users_include_speculative_models(done: Toured, live: Helm) -> None:
    """ClusterRoles extend the users' roles; in the one-namespace mode the chart has none."""
    lab = done.lab
    viewer, editor = account(lab, "view"), account(lab, "edit")
    if done.everywhere:
        until(lambda: may(lab, viewer, "list", "specm"), "an aggregated role")
        until(lambda: may(lab, editor, "create", "specm"), "an aggregated role")
    shown = specdec(lab, "status", tour.RICH, user=viewer)
    assert (shown.exit_code == 0) == done.everywhere, shown.output
    assert (f"{lab.namespace}/{tour.RICH}" in shown.stdout) == done.everywhere
    assert ('cannot get resource "speculativemodels"' in shown.stderr) != done.everywhere
    for verb in ("create", "update", "patch", "delete", "deletecollection"):
        assert may(lab, editor, verb, "specm") == done.everywhere, verb
        assert not may(lab, viewer, verb, "specm"), verb
    scale, proxy = ("specm", "--subresource=scale"), ("pods", "--subresource=proxy")
    assert may(lab, editor, "patch", *scale) == may(lab, viewer, "get", *scale) == done.everywhere
    assert not may(lab, viewer, "patch", *scale)
    assert not may(lab, editor, "patch", "specm", "--subresource=status"), "the operator's alone"
    assert not may(lab, viewer, "get", *proxy)
    if done.everywhere:
        wider = live.template({"rbac": {"aggregate": {"top": True}}})
        people = [o for o in wider if o["metadata"]["name"] == f"{RELEASE}-view"]
        lab.plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(people))
        until(lambda: may(lab, viewer, "get", *proxy), "the right that top takes")


@pytest.mark.parametrize("what", ["secret/given", "secret/big-group", "secrets"])
def test_operator_cannot_read_secrets(done: Toured, what: str) -> None:
    """The operator can read neither a user's Secret nor the Secret that it created."""
    lab = done.lab
    made = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "given"}}
    lab.apply({**made, "stringData": {"token": "hidden"}})
    assert lab.kubectl("get", what, "-o", "name").strip(), "there is nothing to be refused"
    with pytest.raises(ClusterError, match=r'cannot (get|list) resource "secrets"'):
        lab.kubectl("get", what, f"--as={USER}")


def test_missing_finalizer_permission_is_reported(done: Toured) -> None:
    """No request uses this permission itself. Nothing works without it, so this test is last."""
    lab = done.lab
    take(lab.plane, done.objects, OWNING)
    until(lambda: not may_own(lab), "a role without the right")
    lab.apply(tour.resource(tour.LATE))
    condition = lab.wait(tour.LATE, "StorageReady", "False", "Rejected")
    assert UNOWNED in condition["message"]
    assert any(UNOWNED in line for line in done.tour.log.refused())


def may_own(lab: Lab) -> bool:
    kind, _, below = OWNING.resource.partition("/")
    argv = ("auth", "can-i", OWNING.verb, f"{kind}.{OWNING.group}", f"--subresource={below}")
    try:
        lab.kubectl(*argv, f"--as={USER}", "--quiet")
    except ClusterError:
        return False
    return True


def require_hook(pod: Object, url: str) -> None:
    """Check that the program of `helm test` accepts a running operator and nothing else."""
    (container,) = pod["spec"]["containers"]
    program, address = container["args"]
    assert address == f"http://{RELEASE}.{NAMESPACE}.svc:9090/metrics"
    argv = [sys.executable, "-c", program]
    done = subprocess.run([*argv, url], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout[:17]) == (0, "the operator runs"), done.stderr
    closed = subprocess.run([*argv, "http://127.0.0.1:9/"], capture_output=True, check=False)
    assert closed.returncode != 0
