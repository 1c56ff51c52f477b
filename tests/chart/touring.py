"""A release of the chart, and a tour of the operator with the account of that release."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from chart.helm import CHART, NAMESPACE, RELEASE, Helm, Object, environment, scope
from cluster import ClusterError, ControlPlane
from controlplane import definitions, lws
from controlplane.audit import Log, Right, granted, without
from controlplane.operating import ACCOUNT, Lab, Operator, until
from controlplane.tour import Tour, resource

USER = f"system:serviceaccount:{':'.join(ACCOUNT)}"
HERE = ("--namespace", NAMESPACE)
LABEL = ("--selector", "app.kubernetes.io/name=specdec-operator")
WAIT = ("--wait", "--timeout=120s")
MODES = ("everywhere", "one-namespace")
# Where a cluster-wide operator works too, and one of another namespace does not.
ELSEWHERE = "team-b"
# Admission checks it when a child is created; no request uses it.
OWNING = Right("update", "specdec.dev", "speculativemodels/finalizers")


@dataclass(frozen=True)
class Toured:
    """What a tour has shown: `used` and `refused` are those of the whole of it."""

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
    """The roles that are bound to the account."""
    bound = {body["roleRef"]["name"] for body in objects if body["kind"].endswith("RoleBinding")}
    kinds = ("Role", "ClusterRole")
    return [o for o in objects if o["kind"] in kinds and o["metadata"]["name"] in bound]


def unused(given: list[Object], used: set[Right]) -> set[Right]:
    """The rights of roles that were never used."""
    return granted(given) - used - {OWNING}


def define(live: Helm, plane: ControlPlane) -> None:
    """Install every definition; those of kinds that a cluster need not have stay as long as it.

    This comes first: admission that checks owner references reads the definitions with its first
    request, and then twice a minute.
    """
    for file in (*definitions.files(), lws.definition()):
        plane.kubectl("apply", "--server-side", "-f", str(file))
    define_own(live, plane)


def define_own(live: Helm, plane: ControlPlane) -> None:
    """Install the chart's definition as a release keeps it, so that the next one takes it over."""
    (own,) = [o for o in live.template() if o["kind"] == "CustomResourceDefinition"]
    owner = {"release-name": RELEASE, "release-namespace": NAMESPACE}
    own["metadata"]["annotations"] |= {f"meta.helm.sh/{key}": v for key, v in owner.items()}
    text = yaml.safe_dump(own)
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
    until(lambda: served(plane, "specm"), "a known definition")


def served(plane: ControlPlane, kind: str) -> bool:
    """Whether the API server answers about a kind."""
    try:
        plane.kubectl("get", kind, "-n", NAMESPACE)
    except ClusterError:
        return False
    return True


@contextmanager
def toured(
    live: Helm, plane: ControlPlane, folder: Path, mode: str, *, taken: Right | None = None
) -> Iterator[Toured]:
    """Install in one of the chart's two modes, make the tour, and uninstall in the end.

    `folder` is new and gives its name to the namespace; `taken` is a right that the account is
    denied.

    Raises:
        AssertionError: the operator asked for what it may not, or did not do what it should.
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
    """Take away what is there of the release; the definition stays."""
    live("uninstall", RELEASE, *HERE, *WAIT, "--ignore-not-found")


def take(plane: ControlPlane, objects: list[Object], right: Right) -> None:
    """Take one right out of the installed role that has it."""
    (role,) = [role for role in roles(objects) if right in granted([role])]
    plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(without(role, right)))


def process(plane: ControlPlane, objects: list[Object], log: Path) -> Operator:
    """The operator with the settings of its Deployment and the account, beside the cluster."""
    variables = {k: v for k, v in environment(objects).items() if k.startswith("SPECDEC_")}
    names = plane.kubectl("get", "pods", *HERE, *LABEL, "-o", "jsonpath={.items[*].metadata.name}")
    variables |= {"SPECDEC_POD_NAMESPACE": NAMESPACE, "SPECDEC_POD_NAME": names.split()[0]}
    account = plane.service_account(*ACCOUNT)
    return Operator(account, log, scope=scope(objects), **variables)


def _travel(tour: Tour, objects: list[Object], everywhere: bool) -> Toured:
    lab, log, given = tour.lab, tour.log, roles(objects)
    elsewhere = yaml.safe_dump(resource(lab.namespace))
    lab.plane.kubectl("apply", "-n", ELSEWHERE, "-f", "-", stdin=elsewhere)
    tour.go()
    # The operator deletes unneeded objects during the last steps.
    tour.until(
        lambda: not unused(given, log.used()), lambda: f"use of {unused(given, log.used())}"
    )
    return Toured(objects, tour, log.used(), log.refused(), everywhere)
