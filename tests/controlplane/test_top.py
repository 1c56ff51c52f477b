"""`specdec top` reads a served page of metrics through the proxy of a real API server."""

import json
import socket
from typing import Any

import pytest
import yaml

from controlplane.commanding import specdec
from controlplane.operating import Lab, until
from specdec.tools.inspect import top
from support.fake_api import Api, pages, serving
from support.metrics_page import LATER, page

pytestmark = pytest.mark.controlplane


def own_address() -> str:
    """Return an address of this machine to which an API server forwards requests: no loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            pytest.skip("this machine has no address but the loopback's")
        address: str = probe.getsockname()[0]
    if address.startswith("127."):
        pytest.skip("this machine has no address but the loopback's")
    return address


def server_pod() -> dict[str, Any]:
    """Return a pod with the labels of a serving pod."""
    labels = {
        "app.kubernetes.io/managed-by": "specdec",
        "app.kubernetes.io/component": "server",
        "specdec.dev/model": "pair",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pair-0", "labels": labels},
        "spec": {"containers": [{"name": "server", "image": "example.com/server"}]},
    }


def test_top_reads_pods_through_the_api_server(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.kubectl("create", "-f", "-", stdin=yaml.safe_dump(server_pod()))

    def ready() -> bool:
        conditions = (lab.get("pod", "pair-0") or {})["status"].get("conditions", [])
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    until(ready, "a ready pod")
    address = own_address()
    monkeypatch.setattr("specdec.cluster.LOG_TIMEOUT", 60.0)
    with serving(Api(objects={"/metrics": pages(page(), page(**LATER))}), address) as url:
        port = int(url.rpartition(":")[2])
        monkeypatch.setattr(top, "metrics_port", lambda _: port)
        place = {"status": {"podIP": address, "podIPs": [{"ip": address}]}}
        change = ("pair-0", "--subresource=status", "--type=merge", "-p", json.dumps(place))
        lab.kubectl("patch", "pod", *change)
        result = specdec(lab, "top", "--once", "--interval", "1", "--json")
    assert result.exit_code == 0, result.output
    [row] = json.loads(result.stdout)["pods"]
    assert (row["pod"], row["model"], row["state"]) == ("pair-0", "pair", "Ready")
    assert (row["acceptance_percent"], row["tokens_per_round"]) == (75.0, 4.0)
    assert row["in_flight"] == 3

    monkeypatch.setattr(top, "metrics_port", lambda _: 9)  # a closed port
    unreachable = specdec(lab, "top", "--once", "--interval", "1")
    assert unreachable.exit_code == 3, unreachable.output
    assert "about Pod pair-0: " in unreachable.stderr
