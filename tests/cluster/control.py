"""The control plane: etcd, API server, controller-manager, scheduler, and kwok."""

import json
import subprocess
from pathlib import Path

from cluster import binaries, folders, objects, processes
from cluster.api import Api
from cluster.errors import ClusterError
from cluster.network import enter
from cluster.state import State, write_identities

_THROTTLE = ("--kube-api-qps=500", "--kube-api-burst=1000")
_SYNCS = ("job", "deployment", "replicaset", "service-endpoint", "gc")


def start(state: State) -> None:
    """Start the control plane, and wait until its API server is ready.

    Raises:
        ClusterError: a program ended or did not become ready; carries the reason.
    """
    write_keys(state)
    write_identities(state)
    processes.start("etcd", _argv(state, "etcd", _etcd(state)), state.folder)
    processes.start(
        "kube-apiserver", _argv(state, "kube-apiserver", _apiserver(state)), state.folder
    )
    api = Api(state.kubeconfig)
    wait(state, api.healthy, "The API server did not become ready")
    for name, flags in (
        ("kube-controller-manager", _controller_manager(state)),
        ("kube-scheduler", _scheduler(state)),
    ):
        processes.start(name, _argv(state, name, flags), state.folder)


def start_kwok(state: State) -> None:
    """Start kwok with the stages of stages.yaml, and create its GPU nodes."""
    stages = (Path(__file__).parent / "stages.yaml").read_text()
    config = state.folder / "stages.yaml"
    # A Job's pod without an annotated outcome either succeeds or waits for that annotation.
    config.write_text(
        stages.replace("UNDECIDED", "hold" if state.options.hold_jobs else "succeed")
    )
    flags = [
        f"--kubeconfig={state.kubeconfig}",
        f"--config={config}",
        "--manage-nodes-with-label-selector=type=kwok",
        "--cidr=10.244.0.0/16",
        "--server-address=",
        "--v=-4",
    ]
    processes.start("kwok", _argv(state, "kwok", flags), state.folder)
    api = Api(state.kubeconfig)
    for number in range(state.options.nodes):
        api.apply(objects.gpu_node(f"gpu-{number}", state.options))


def wait_for_defaults(state: State) -> None:
    """Wait until pods can be created in the namespace default and every kwok node is ready."""
    api = Api(state.kubeconfig)
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    wait(state, lambda: api.exists(account), "The controller-manager created no accounts")
    if state.options.kwok:
        wait(
            state,
            lambda: objects.ready_nodes(api) >= state.options.nodes,
            "The kwok nodes did not become ready",
        )


def wait(state: State, true: objects.Check, otherwise: str) -> None:
    """Wait until true() holds; fail at once when a process of the cluster has ended.

    Raises:
        ClusterError: a process ended or the time is over; carries the reason.
    """

    def check() -> bool:
        processes.check(state.folder, processes.recorded(state.folder))
        return true()

    processes.until(
        check,
        lambda: f"{otherwise} within {processes.DEADLINE_SECONDS} s; see {state.folder / 'logs'}.",
    )


def write_keys(state: State) -> None:
    """Write the cluster's certificates and signing keys into keys/."""
    keys = state.folder / "keys"
    keys.mkdir(mode=0o700, exist_ok=True)
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
    names.append("kubernetes.default.svc.cluster.local")
    hosts = ["127.0.0.1", state.addresses.host, state.addresses.first_service, *names]
    argv = [str(binaries.path("keys")), "--dir", str(keys), "--hosts", ",".join(hosts)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(done.stderr.strip())


def _argv(state: State, name: str, flags: list[str]) -> list[str]:
    return [*enter(state), str(binaries.path(name)), *flags]


def _etcd(state: State) -> list[str]:
    client = f"http://127.0.0.1:{state.addresses.etcd}"
    peer = f"http://127.0.0.1:{state.addresses.etcd_peer}"
    return [
        f"--data-dir={state.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--quota-backend-bytes=4294967296",
        "--log-level=warn",
    ]


def _apiserver(state: State) -> list[str]:
    keys = state.folder / "keys"
    reconciler = "lease" if state.options.kind == "node" else "none"
    emulated = state.options.emulated
    return [
        f"--etcd-servers=http://127.0.0.1:{state.addresses.etcd}",
        f"--bind-address={state.addresses.host}",
        f"--advertise-address={state.addresses.host}",
        f"--secure-port={state.addresses.api}",
        f"--endpoint-reconciler-type={reconciler}",
        f"--service-cluster-ip-range={state.addresses.services}",
        f"--tls-cert-file={keys / 'apiserver.crt'}",
        f"--tls-private-key-file={keys / 'apiserver.key'}",
        f"--kubelet-client-certificate={keys / 'kubelet-client.crt'}",
        f"--kubelet-client-key={keys / 'kubelet-client.key'}",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={keys / 'service-accounts.pub'}",
        f"--service-account-signing-key-file={keys / 'service-accounts.key'}",
        f"--token-auth-file={keys / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        # Some clusters enable this plugin; blockOwnerDeletion then needs a separate permission.
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
        "--allow-privileged=true",
        *([f"--emulated-version=kube={emulated}"] if emulated else []),
        *_audit(state),
    ]


def _audit(state: State) -> list[str]:
    """Return flags that log the requests of one user, without bodies and after the response."""
    if not state.options.audited:
        return []
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "Metadata", "users": [state.options.audited]},
            {"level": "None"},
        ],
    }
    file = folders.write(state.folder / "audit.json", json.dumps(policy))
    log = state.folder / "logs" / "audit.log"
    return [f"--audit-policy-file={file}", f"--audit-log-path={log}"]


def _controller_manager(state: State) -> list[str]:
    keys = state.folder / "keys"
    # kwok renews no lease that this controller accepts as a heartbeat, so nodes get more time.
    grace = "1h" if state.options.kwok else "40s"
    return [
        f"--kubeconfig={state.user('system:kube-controller-manager')}",
        f"--service-account-private-key-file={keys / 'service-accounts.key'}",
        f"--root-ca-file={keys / 'ca.crt'}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--secure-port=0",
        f"--node-monitor-grace-period={grace}",
        # The interval of autoscaler checks; with the default, tests would have to wait for 15 s.
        "--horizontal-pod-autoscaler-sync-period=2s",
        "--terminated-pod-gc-threshold=1000",
        *_THROTTLE,
        *(f"--concurrent-{kind}-syncs=32" for kind in _SYNCS),
    ]


def _scheduler(state: State) -> list[str]:
    return [
        f"--kubeconfig={state.user('system:kube-scheduler')}",
        "--leader-elect=false",
        "--secure-port=0",
        *_THROTTLE,
    ]
