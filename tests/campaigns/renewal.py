"""Renews a certificate on a real node: all pods are replaced, and no new connection fails.

`make campaign NAME=renewal` needs Linux and root. Every round writes another certificate into the
Secret and changes nothing else. During the round a client opens one TLS connection after another
and never retries.
"""

import argparse
import json
import socket
import ssl
import tempfile
import time
from base64 import b64encode
from contextlib import AbstractContextManager
from pathlib import Path

from e2e.node import up
from e2e.polling import repeating
from e2e.world import World, model
from support.bench_report import Report
from support.certificates import Certificates, make

NAME = "renewed"
SECRET = f"{NAME}-tls"
REPLICAS = 2
# Seconds, instead of ten minutes. The kubelet needs further time to update the files.
RESYNC = 15


def give(world: World, made: Certificates) -> None:
    """Write a server certificate into the Secret, as a certificate manager does."""
    files = {"tls.crt": made.server.certificate, "tls.key": made.server.key}
    data = {
        name: b64encode(Path(file).read_bytes()).decode()
        for name, file in {**files, "ca.crt": made.authority}.items()
    }
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "data": data}
    world.kubectl("apply", "-f", "-", given=json.dumps({**body, "type": "kubernetes.io/tls"}))


def shown(address: str) -> str:
    """Return the certificate that a new connection gets, as PEM; raises OSError."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=20) as plain,
        context.wrap_socket(plain) as secure,
    ):
        return ssl.DER_cert_to_PEM_cert(secure.getpeercert(binary_form=True) or b"")


def connecting(address: str) -> AbstractContextManager[list[str]]:
    """Connect repeatedly; the list gets an entry for each connection: empty, or its error."""

    def once() -> list[str]:
        try:
            return ["" if shown(address) else "no certificate"]
        except OSError as error:
            return [f"{type(error).__name__}: {error}"]

    return repeating(once)


def one(world: World, folder: Path, report: Report) -> None:
    """Renew the certificate once under load, and report the figures."""
    before, address = {pod["metadata"]["uid"] for pod in world.pods(NAME)}, world.address(NAME)
    folder.mkdir()
    made, begun = make(folder), time.monotonic()

    def replaced() -> bool:
        uids = {pod["metadata"]["uid"] for pod in world.pods(NAME)}
        return len(uids) == REPLICAS and not uids & before

    with connecting(address) as seen:
        give(world, made)
        world.wait(replaced, lambda: f"the pods of {NAME} are not replaced")
        world.left(NAME, REPLICAS)
        world.ready(NAME)
    failures = [failure for failure in seen if failure]
    report.figure("renewal.seconds", [time.monotonic() - begun], "s")
    report.figure("renewal.connections", [len(seen)], "connections")
    report.figure("renewal.failed", [len(failures)], "connections", goal=0)
    old = shown(address) != Path(made.server.certificate).read_text()
    report.figure("renewal.old_certificate", [old], "renewals", goal=0)
    for failure in failures[:20]:
        report.note(failure)


def main() -> int:
    """Run; return 1 if a connection failed, or got the old certificate after a renewal."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.renewal", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="(%(default)s)")
    parser.add_argument("--keep", action="store_true", help="leave the node up for the next run")
    options = parser.parse_args()
    report = Report()
    with up("specdec-renewal", keep=options.keep) as world, tempfile.TemporaryDirectory() as name:
        operator = ("deployment/specdec-operator", "-n", "specdec-system")
        world.kubectl("set", "env", *operator, f"SPECDEC_RESYNC_SECONDS={RESYNC}")
        (Path(name) / "first").mkdir()
        give(world, make(Path(name) / "first"))
        world.apply(model(NAME, serving={"replicas": REPLICAS, "tls": {"secretName": SECRET}}))
        world.ready(NAME)
        for number in range(options.rounds):
            one(world, Path(name) / str(number), report)
    return report.exit_status()


if __name__ == "__main__":
    raise SystemExit(main())
