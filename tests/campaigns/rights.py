"""Removes each permission of the operator's role in turn; a tour of all features must then fail.

`make campaign NAME=rights` installs the chart on a local control plane and makes the tour: first
with the unchanged role, then once without each permission. With the unchanged role the tour must
succeed. Without a permission it must fail, because the API server refuses that very permission.
"""

import argparse
import json
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from chart.helm import NAMESPACE, Helm
from chart.touring import ELSEWHERE, MODES, OWNING, USER, define, roles, toured
from cluster import ClusterError, ControlPlane, binaries
from cluster.progress import report as progress
from controlplane.audit import UNOWNED, Right, granted
from controlplane.operating import until
from support.bench_report import Report

UNTRACKED = '{"metadata": {"finalizers": null}}'


def missed(live: Helm, plane: ControlPlane, folder: Path, mode: str, right: Right | None) -> str:
    """Return the error of a tour without this permission; empty if the tour succeeded."""
    folder.mkdir()
    try:
        with toured(live, plane, folder, mode, taken=right):
            return ""
    except (AssertionError, ClusterError) as error:
        return " ".join(str(error).split())[:600] or type(error).__name__
    finally:
        until(lambda: _clear(plane, folder.name), f"an end of the pods of {folder.name}")


def _clear(plane: ControlPlane, namespace: str) -> bool:
    """Free the volumes and GPUs of a tour: return whether all of its pods are deleted.

    If a Job was deleted while its pod ran, the pod may keep its finalizer: remove it then.
    """
    pods = [pod for at in (namespace, ELSEWHERE) for pod in plane.get("pods", "-n", at)["items"]]
    for meta in (pod["metadata"] for pod in pods):
        if "deletionTimestamp" in meta and meta.get("finalizers"):
            which = ("pod", meta["name"], "-n", meta["namespace"])
            with suppress(ClusterError):  # the pod is already deleted
                plane.kubectl("patch", *which, "--type=merge", "-p", UNTRACKED)
    return not pods


def refused(right: Right, error: str) -> bool:
    """Return whether the error is the refusal of this permission, not another failure."""
    # Without some permissions the operator ends when it starts. Its log, which is JSON, then has
    # the message of the API server.
    target = f'resource "{right.resource}" in API group "{right.group}"'
    rejected = f"cannot {right.verb} {json.dumps(target)[1:-1]}"
    named = f"{right}:" in error or rejected in error
    return named or (right == OWNING and UNOWNED in error)


def chosen(helm: Helm, mode: str, only: str, after: str) -> list[Right]:
    """Return the sorted permissions of a mode that contain `only` and come behind `after`.

    Raises:
        ValueError: the role lacks the permission `after`.
    """
    values = {"watchNamespaces": [] if mode == "everywhere" else ["any"]}
    rights = sorted(granted(roles(helm.template(values))))
    known = [str(right) for right in rights]
    first = known.index(after) + 1 if after else 0
    return [right for right in rights[first:] if only in str(right)]


def campaign(mode: str, only: str, after: str, report: Report) -> None:
    """Make a tour with all permissions, then a tour without each chosen permission."""
    binaries.ensure(["helm", "kubectl"], progress)
    with tempfile.TemporaryDirectory() as name:
        taken = chosen(Helm(Path(name)), mode, only, after)
        cluster = ControlPlane(f"rights-{mode}", hold_jobs=True, nodes=4, volumes=60, audited=USER)
        with cluster as plane:
            live = Helm(Path(name), plane.kubeconfig)
            for namespace in (NAMESPACE, ELSEWHERE):
                plane.kubectl("create", "namespace", namespace)
            define(live, plane)
            error = missed(live, plane, Path(name) / "whole", mode, None)
            report.note(error)
            report.figure(f"rights.{mode}_fails_with_all", [bool(error)], "tours", goal=0)
            unnoticed = otherwise = 0
            for number, right in enumerate(taken):
                error = missed(live, plane, Path(name) / f"without-{number}", mode, right)
                report.note(f"without {right}: {error or 'nothing was missed'}")
                unnoticed += not error
                otherwise += bool(error) and not refused(right, error)
    report.figure(f"rights.{mode}_taken_away", [len(taken)], "rights")
    report.figure(f"rights.{mode}_unnoticed", [unnoticed], "rights", goal=0)
    report.figure(f"rights.{mode}_noticed_by_something_else", [otherwise], "rights", goal=0)


def main() -> int:
    """Run the campaign; return 1 if a tour ends in an unexpected way."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.rights", description=__doc__)
    parser.add_argument("--mode", choices=MODES, help="of the chart (both)")
    parser.add_argument("--only", default="", help="rights that hold this, such as 'delete jobs'")
    parser.add_argument("--after", default="", help="go on behind this right, as a note names it")
    options = parser.parse_args()
    report, begun = Report(), time.monotonic()
    for mode in [options.mode] if options.mode else MODES:
        campaign(mode, options.only, options.after, report)
    report.figure("rights.seconds", [time.monotonic() - begun], "s")
    return report.exit_status()


if __name__ == "__main__":
    raise SystemExit(main())
