"""The command line on a real API server, for accounts with different permissions."""

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from cluster import ClusterError
from controlplane.operating import Lab, until
from specdec.tools.cli.app import app


def specdec(lab: Lab, *arguments: str, user: Path | None = None) -> Result:
    """Run the command line with the kubeconfig `user`, by default the administrator's."""
    login = {"KUBECONFIG": str(user or lab.plane.kubeconfig)}
    return CliRunner().invoke(app, [*arguments, "-n", lab.namespace], env=login)


def assert_status_command_shows_all(lab: Lab) -> None:
    """Check that `specdec status` of a serving resource equals its status on the API server."""
    result = specdec(lab, "status", "pair", "--json")
    assert result.exit_code == 0, result.output
    output = json.loads(result.stdout)
    live = (lab.get("specm", "pair") or {})["status"]
    for part in ("conditions", "engines", "plan", "speculation", "url"):
        assert output[part] == live[part], part
    assert {(job["component"], job["state"]) for job in output["jobs"]} == {
        (component, "Complete") for component in ("fetch", "engine", "publish", "verify")
    }
    assert len([job for job in output["jobs"] if job["component"] == "engine"]) == 2
    assert [(pod["component"], pod["ready"]) for pod in output["pods"]] == [("server", True)]
    tree = specdec(lab, "status", "pair").stdout
    assert f"{lab.namespace}/pair  {live['phase']}" in tree
    for word in ("SpeculationActive", "DraftTokensObserved", "50 %", "150 %", output["url"]):
        assert word in tree
    assert "pair" in specdec(lab, "status").stdout
    missing = specdec(lab, "status", "pear")
    assert (missing.exit_code, "it has pair" in missing.stderr) == (2, True), missing.output


def may(lab: Lab, user: Path, *what: str) -> bool:
    try:
        lab.plane.kubectl("auth", "can-i", "--quiet", "-n", lab.namespace, *what, user=user)
    except ClusterError:
        return False
    return True


def account(lab: Lab, role: str) -> Path:
    """Create an account with one of the cluster's built-in roles; return its kubeconfig."""
    lab.kubectl("create", "serviceaccount", role)
    given = (f"--clusterrole={role}", f"--serviceaccount={lab.namespace}:{role}")
    lab.kubectl("create", "rolebinding", role, *given)
    login = lab.plane.service_account(lab.namespace, role)
    # A new role binding takes effect after a moment.
    until(lambda: may(lab, login, "list", "pods"), f"the rights of {role}")
    return login


def assert_viewer_sees_the_status(lab: Lab) -> None:
    """Check that a viewer gets the status, and that `top` names the missing permission."""
    viewer, editor = account(lab, "view"), account(lab, "edit")
    result = specdec(lab, "top", "pair", "--once", user=viewer)
    assert result.exit_code == 1, result.output
    assert 'cannot get resource "pods/proxy"' in result.stderr
    assert may(lab, editor, "get", "pods", "--subresource=proxy")
    result = specdec(lab, "status", "pair", "--json", user=viewer)
    assert result.exit_code == 0, result.output
    assert {job["component"] for job in json.loads(result.stdout)["jobs"]} >= {"fetch", "verify"}
