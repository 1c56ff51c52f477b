"""The node: containerd, kubelet, kube-proxy, DNS, simulated GPUs, and volumes."""

import json
import zlib
from pathlib import Path

from cluster import archive, binaries, control, network, objects, processes, registry
from cluster.api import Api, Object
from cluster.network import start_inside
from cluster.state import State

_PAUSE = "localhost/specdec-pause:1"
_CGROUPS = Path("/sys/fs/cgroup")
# The file of cgroup v1 or v2 -> ten times its default. By default, all pods of a node together
# get the processor share of a single session. While tests run in parallel, pods could then get
# no processor time for a second, and Triton 2.51 may end a server for that.
_SHARES = {"cpu.shares": "10240", "cpu.weight": "1000"}
_PLUGIN = "gpuplugin"
_GRACE = 10.0
_PLUGINS = ("/usr/lib/cni", "/opt/cni/bin")


def start(state: State) -> None:
    """Start the node's programs and wait until pods can run.

    Raises:
        ClusterError: a program ended or the node did not become ready; carries the reason.
    """
    _create_cgroup(state)
    for name, argv in (
        (
            "containerd",
            ["containerd", "--config", _write(state, "containerd", _containerd(state))],
        ),
        ("coredns", [_built("coredns"), "-conf", _write(state, "Corefile", _corefile(state))]),
    ):
        start_inside(state, name, argv)
    api = Api(state.kubeconfig)
    for body in objects.dns_role():
        api.apply(body)
    control.wait(state, lambda: archive.containerd_answers(state), "containerd did not answer")
    archive.load(state, archive.pause(state), _PAUSE)
    _start_kubernetes(state)
    control.wait(state, lambda: objects.ready_nodes(api) == 1, "The node did not get ready")
    if state.options.gpus:
        offer_gpus(state, state.options.gpus)


def offer_gpus(state: State, count: int) -> None:
    """Let the node offer this number of simulated GPUs, and label it with their product.

    Pods keep the GPUs that they have.
    """
    api = Api(state.kubeconfig)
    if objects.gpus_offered(api, state.name) == count:
        return
    labels = {"nvidia.com/gpu.product": state.options.gpu_product}
    api.call(
        "PATCH",
        f"/api/v1/nodes/{state.name}",
        {"metadata": {"labels": labels}},
        "application/merge-patch+json",
    )
    if running := processes.recorded(state.folder).get(_PLUGIN):
        processes.stop(running, _GRACE)
    start_inside(state, _PLUGIN, [_built(_PLUGIN), f"-count={count}"])
    control.wait(
        state,
        lambda: objects.gpus_offered(api, state.name) == count,
        "The node did not offer its GPUs",
    )


def prepare_volumes(state: State) -> None:
    """Create the folders of the volumes, and mount a small file system for the tiny volume."""
    for body in objects.volumes(state):
        folder = Path(body["spec"]["hostPath"]["path"])
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)  # Pods run as different users.
        if body["spec"]["storageClassName"] == objects.TINY_CLASS:
            options = f"mode=777,size={objects.TINY_BYTES}"
            mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
            network.run([*network.enter(state), *mount])


def stop(state: State) -> None:
    """Remove the node's control groups; their processes must have ended."""
    for root in _cgroup_roots():
        top = root / _cgroup(state).lstrip("/")
        if top.exists():
            processes.until(
                lambda top=top: _removed(top),  # type: ignore[misc]
                lambda top=top: f"The control group {top} is still in use.",  # type: ignore[misc]
            )


def _start_kubernetes(state: State) -> None:
    kubelet = [
        f"--config={_write(state, 'kubelet.json', json.dumps(_kubelet(state), indent=1))}",
        f"--kubeconfig={state.user(f'system:node:{state.name}')}",
        f"--hostname-override={state.name}",
        f"--node-ip={state.addresses.host}",
        f"--cert-dir={state.folder / 'kubelet-pki'}",
    ]
    proxy = _write(state, "kube-proxy.json", json.dumps(_kube_proxy(state), indent=1))
    start_inside(state, "kubelet", [_built("kubelet"), *kubelet])
    start_inside(state, "kube-proxy", [_built("kube-proxy"), f"--config={proxy}"])


def _built(name: str) -> str:
    return str(binaries.path(name))


def _write(state: State, name: str, text: str) -> str:
    file = state.folder / "config" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return str(file)


def _containerd(state: State) -> str:
    plugins = next(folder for folder in _PLUGINS if (Path(folder) / "ptp").exists())
    _write(state, "cni/10-specdec.conflist", json.dumps(_cni(state), indent=1))
    _write(state, f"registries/{registry.MIRRORED}/hosts.toml", registry.hosts(state))
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    # restrict_oom_score_adj: runc cannot lower the score without CAP_SYS_RESOURCE, and fails.
    return f"""version = 2
root = {json.dumps(str(state.folder / "containerd"))}
state = "/run/containerd"
[grpc]
address = "{archive.CONTAINERD}"
[plugins."io.containerd.internal.v1.opt"]
path = {json.dumps(str(state.folder / "opt"))}
[{cri}]
sandbox_image = "{_PAUSE}"
restrict_oom_score_adj = true
[{cri}.registry]
config_path = {json.dumps(str(state.folder / "config" / "registries"))}
[{cri}.containerd]
snapshotter = "{archive.snapshotter(state)}"
[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.runc.options]
SystemdCgroup = false
[{cri}.cni]
bin_dir = "{plugins}"
conf_dir = {json.dumps(str(state.folder / "config" / "cni"))}
"""


def _cni(state: State) -> Object:
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": network.pods(state), "gateway": state.addresses.host}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(state.folder / "cni" / "addresses"),
    }
    # Not `bridge`: a Service's replies between pods of one bridge bypass kube-proxy's address
    # rewriting, unless the kernel filters bridged packets.
    return {
        "cniVersion": "0.4.0",
        "name": "specdec",
        "plugins": [
            {"type": "ptp", "ipMasq": False, "ipam": addresses},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def _corefile(state: State) -> str:
    return f"""cluster.local:53 in-addr.arpa:53 {{
    bind {state.addresses.host}
    errors
    cache 5
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {state.user("coredns")}
        pods verified
        ttl 5
    }}
}}
"""


def _kubelet(state: State) -> Object:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": state.addresses.host,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(state.folder / "keys" / "ca.crt")},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": _cgroup(state),
        "clusterDNS": [state.addresses.host],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": f"unix://{archive.CONTAINERD}",
        "enforceNodeAllocatable": ["pods"],
        # Keep all images: a developer's disk is often nearly full, and images are loaded by hand.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%"},
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "podLogsDir": str(state.folder / "pod-logs"),
        "resolvConf": "",
        "volumePluginDir": str(state.folder / "volume-plugins"),
    }


def _kube_proxy(state: State) -> Object:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "bindAddress": state.addresses.host,
        "clientConnection": {"kubeconfig": str(state.user("system:kube-proxy"))},
        "clusterCIDR": network.pods(state),
        # The limits of connection tracking belong to the machine, not to this namespace.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpCloseWaitTimeout": "0s",
            "tcpEstablishedTimeout": "0s",
        },
        "healthzBindAddress": "127.0.0.1:10256",
        "hostnameOverride": state.name,
        "iptables": {"minSyncPeriod": "100ms"},
        "metricsBindAddress": "127.0.0.1:10249",
        "mode": "iptables",
    }


def _cgroup(state: State) -> str:
    """Return a node's control group; the checksum distinguishes equal names of two caches."""
    return f"/specdec-{state.name}-{zlib.crc32(bytes(state.folder)):08x}"


def _cgroup_roots() -> list[Path]:
    """Return the root of each hierarchy: cgroup v2 has one, cgroup v1 one per controller."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS]
    return [root for root in _CGROUPS.iterdir() if root.is_dir() and not root.is_symlink()]


def _create_cgroup(state: State) -> None:
    for root in _cgroup_roots():
        top = root / _cgroup(state).lstrip("/")
        top.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (top / name).exists() and (root / name).exists() and root != _CGROUPS:
                (top / name).write_text((root / name).read_text())
        if root == _CGROUPS:
            controllers = (root / "cgroup.controllers").read_text().split()
            (root / "cgroup.subtree_control").write_text(" ".join(f"+{c}" for c in controllers))
        for name, share in _SHARES.items():
            if (top / name).exists():
                (top / name).write_text(share)


def _removed(top: Path) -> bool:
    for folder in sorted(top.rglob("*"), reverse=True):
        if folder.is_dir():
            _try_rmdir(folder)
    return _try_rmdir(top)


def _try_rmdir(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False  # The group still has a process that is ending.
    return True
