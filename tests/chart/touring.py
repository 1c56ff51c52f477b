"""Runs the operator with the account of a chart release, in a tour of all features."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from chart.helm import CHART, NAMESPACE, RELEASE, Helm, Object, environment
from cluster import ClusterError, ControlPlane
from cluster.processes import TIMEOUT
from controlplane import definitions, lws
from controlplane.audit import Log, Right, granted, without
from controlplane.operating import ACCOUNT, Lab, Operator, until
from controlplane.tour import Tour, resource

USER = f"system:serviceaccount:{':'.join(ACCOUNT)}"
HERE = ("--namespace", NAMESPACE)
LABEL = ("--selector", "app.kubernetes.io/name=specdec-operator")
WAIT = ("--wait", TIMEOUT)
MODES = ("everywhere", "one-namespace")
# A cluster-wide operator reconciles this namespace too; an operator of another namespace does not.
ELSEWHERE = "team-b"
# Admission checks this permission when a child is created; no request uses it.
OWNING = Right("update", "specdec.dev", "speculativemodels/finalizers")


@dataclass(frozen=True)
class Toured:
    """The result of a tour: `used` permissions and `refused` requests are of the whole tour."""

    objects: list[Object]
    tour: Tour
    used: set[Right]
    refused: list[str]
    everywhere: bool

    @property
    def lab(self) -> Lab:
        return self.tour.lab

    @property
    def roles(self) -> list[Object]:
        return roles(self.objects)


def roles(objects: list[Object]) -> list[Object]:
    """Return the roles that are bound to the account."""
    bound = {body["roleRef"]["name"] for body in objects if body["kind"].endswith("RoleBinding")}
    kinds = ("Role", "ClusterRole")
    return [o for o in objects if o["kind"] in kinds and o["metadata"]["name"] in bound]


def unused(given: list[Object], used: set[Right]) -> set[Right]:
    """Return the permissions of roles that no request used, except `OWNING`."""
    return granted(given) - used - {OWNING}


def define(live: Helm, plane: ControlPlane) -> None:
    """Install every CRD; CRDs of optional kinds stay as long as the cluster.

    This comes first: the admission check of owner references reads the CRDs at its first request,
    and then twice a minute.
    """
    for file in (*definitions.files(), lws.definition()):
        plane.kubectl("apply", "--server-side", "-f", str(file))
    define_own(live, plane)


def define_own(live: Helm, plane: ControlPlane) -> None:
    """Install the chart's CRD as if a release had kept it, so that the next release adopts it."""
    (own,) = [o for o in live.template() if o["kind"] == "CustomResourceDefinition"]
    owner = {"release-name": RELEASE, "release-namespace": NAMESPACE}
    own["metadata"]["annotations"] |= {f"meta.helm.sh/{key}": v for key, v in owner.items()}
    text = yaml.safe_dump(own)
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
    until(lambda: served(plane, "specm"), "a known definition")


def served(plane: ControlPlane, kind: str) -> bool:
    """Return whether the API server serves a kind."""
    try:
        plane.kubectl("get", kind, "-n", NAMESPACE)
    except ClusterError:
        return False
    return True


@contextmanager
def toured(
    live: Helm, plane: ControlPlane, folder: Path, mode: str, *, taken: Right | None = None
) -> Iterator[Toured]:
    """Install the chart in a mode, run the tour, yield its result, and uninstall the chart.

    The namespace has the name of `folder`. `taken` is a permission that the account does not
    receive.

    Raises:
        AssertionError: the API server refused a request, or an expected result is missing.
    """
    namespace, everywhere = folder.name, mode == "everywhere"
    plane.kubectl("create", "namespace", namespace)
    values = {"watchNamespaces": [] if everywhere else [namespace]}
    objects = live.template(values)
    log = Log(plane.audit_log)
    live("install", RELEASE, CHART, *HERE, *WAIT, values=values)
    try:
        if taken is not None:
            take(plane, objects, taken)
        with process(plane, objects, folder / "log") as operator:
            yield _travel(Tour(Lab(plane, operator, namespace), log), objects, everywhere)
    finally:
        uninstall(live)
        plane.kubectl("delete", "namespace", namespace, "--wait=false")
        plane.kubectl("delete", "specm", "-n", ELSEWHERE, "--all", "--wait=false")


def uninstall(live: Helm) -> None:
    """Uninstall what exists of the release; the CRD stays."""
    live("uninstall", RELEASE, *HERE, *WAIT, "--ignore-not-found")


def take(plane: ControlPlane, objects: list[Object], right: Right) -> None:
    """Remove a permission from the installed role that has it."""
    (role,) = [role for role in roles(objects) if right in granted([role])]
    plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(without(role, right)))


def process(plane: ControlPlane, objects: list[Object], log: Path) -> Operator:
    """Return the operator as a local process, with its Deployment's settings and account."""
    variables = {k: v for k, v in environment(objects).items() if k.startswith("SPECDEC_")}
    names = plane.kubectl("get", "pods", *HERE, *LABEL, "-o", "jsonpath={.items[*].metadata.name}")
    variables |= {"SPECDEC_POD_NAMESPACE": NAMESPACE, "SPECDEC_POD_NAME": names.split()[0]}
    account = plane.service_account(*ACCOUNT)
    return Operator(account, log, **variables)


def _travel(tour: Tour, objects: list[Object], everywhere: bool) -> Toured:
    lab, log, given = tour.lab, tour.log, roles(objects)
    elsewhere = yaml.safe_dump(resource(lab.namespace))
    lab.plane.kubectl("apply", "-n", ELSEWHERE, "-f", "-", stdin=elsewhere)
    tour.go()
    # The operator deletes unneeded objects in the last steps of the tour.
    tour.until(
        lambda: not unused(given, log.used()), lambda: f"use of {unused(given, log.used())}"
    )
    return Toured(objects, tour, log.used(), log.refused(), everywhere)
