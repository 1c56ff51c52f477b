"""A node's own namespaces for network, mounts and processes.

A holder process keeps the namespaces alive. It is process 1 of its namespace: when it ends, the
kernel ends all processes of the node, containers included, and removes every mount. A veth pair
leads from the machine to the API server, the pods and the Services. Programs inside have no route
beyond that pair, and cannot open a connection over it.
"""

import contextlib
import ipaddress
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

from cluster import binaries, processes
from cluster.errors import ClusterError
from cluster.state import Addresses, State, boot_id, known

HOLDER = "holder"
_UNSHARE = "namespaces"
_SUBNETS = 64


def addresses() -> Addresses:
    """Choose networks that overlap neither a route of this machine nor another cluster."""
    taken = {state.addresses.subnet for state in known()}
    used = _routes()
    for subnet in range(_SUBNETS):
        desired = [
            ipaddress.ip_network(f"10.{second}.{subnet}.0/24") for second in (213, 214, 215)
        ]
        if subnet not in taken and not any(a.overlaps(b) for a in desired for b in used):
            host = f"10.213.{subnet}.1"
            return Addresses(host, 6443, 2379, 2380, f"10.214.{subnet}.0/24", subnet)
    raise ClusterError("No free network is left for a node; take other clusters down.")


def pods(state: State) -> str:
    """Return the network of the pods; its first address is the node's."""
    return f"10.213.{state.addresses.subnet}.0/24"


def enter(state: State) -> list[str]:
    """Return the argv prefix that runs a program in the node; empty if there is no node."""
    if state.options.kind != "node":
        return []
    holder = processes.recorded(state.folder).get(HOLDER)
    if holder is None or not holder.alive:
        raise ClusterError(f"The node of {state.name} does not run.")
    return ["nsenter", f"--target={holder.pid}", "--net", "--mount", "--pid", "--"]


def start(state: State) -> None:
    """Create the namespaces with their mounts, and connect them to the machine's network."""
    _hold(state)
    for argv in (*_inner_mounts(state), *_inner_network(state)):
        run([*enter(state), *argv])
    holder = processes.recorded(state.folder)[HOLDER]
    for argv in _outer_network(state, holder.pid):
        run(argv)
    for argv in _inner_uplink(state):
        run([*enter(state), *argv])


def stop(state: State, grace: float) -> None:
    """End the holder and so the whole node; wait until the machine's interface is removed."""
    recorded = processes.recorded(state.folder) if state.boot == boot_id() else {}
    for name in (HOLDER, _UNSHARE):
        if name in recorded:
            processes.stop(recorded[name], grace)
    device = Path("/sys/class/net") / _device(state)
    if not device.exists():
        return
    # The kernel removes the pair later than the namespace; a new cluster must not reuse it.
    with contextlib.suppress(ClusterError):
        run(["ip", "link", "delete", device.name])
    processes.until(lambda: not device.exists(), lambda: f"The interface {device} stays.")


def start_inside(
    state: State, name: str, argv: list[str], extra: dict[str, str] | None = None
) -> processes.Process:
    """Start a program in the node, and record the program itself instead of its nsenter.

    nsenter has to fork to enter the process namespace, and does not pass signals on.
    """
    outer = processes.spawn(name, [*enter(state), *argv], state.folder, extra)
    inner: list[int] = []

    def started() -> bool:
        inner[:] = processes.children(outer)
        return bool(inner)

    processes.until(
        started, lambda: f"{name} did not start: {processes.last_output(state.folder, name)}"
    )
    return processes.record(name, inner[0], state.folder)


def run(argv: list[str]) -> str:
    """Run argv to its end and return its output.

    Raises:
        ClusterError: the program failed; carries the end of its output.
    """
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no output"]
        raise ClusterError(f"`{' '.join(argv)}` failed: {output[0]}")
    return done.stdout


def _hold(state: State) -> None:
    pause = binaries.path("pause")
    flags = ["--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
    argv = ["unshare", *flags, "--propagation=slave", "--", str(pause)]
    outer = processes.start(_UNSHARE, argv, state.folder)
    inner: list[int] = []

    def holds() -> bool:
        processes.check(state.folder, [_UNSHARE])
        inner[:] = processes.children(outer.pid)
        # Before its exec, the child may still be mounting /proc.
        return bool(inner) and Path(f"/proc/{inner[0]}/exe").resolve() == pause.resolve()

    processes.until(holds, lambda: "The node's namespaces could not be created.")
    processes.record(HOLDER, inner[0], state.folder)


def masked(state: State) -> dict[Path, Path | None]:
    """Return the machine's folders that a node replaces, each by a folder or (None) a tmpfs."""
    return {
        Path("/run"): None,
        Path("/var/log/containers"): None,
        Path("/var/lib/kubelet"): state.folder / "kubelet",
        Path("/var/lib/cni"): state.folder / "cni",
    }


def _inner_mounts(state: State) -> Iterable[list[str]]:
    for place, source in masked(state).items():
        if source is None:
            yield ["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(place)]
        else:
            source.mkdir(exist_ok=True)
            yield ["mount", "--bind", str(source), str(place)]


def _inner_network(state: State) -> Iterable[list[str]]:
    yield ["ip", "link", "set", "lo", "up"]
    # A bridge without ports: every kernel supports it, and it needs no physical device.
    yield ["ip", "link", "add", "node0", "type", "bridge"]
    yield ["ip", "address", "add", f"{state.addresses.host}/32", "dev", "node0"]
    yield ["ip", "link", "set", "node0", "up"]
    # The kernel routes before kube-proxy rewrites addresses, so Services need a route.
    yield ["ip", "route", "add", state.addresses.services, "dev", "node0"]
    yield ["sysctl", "-qw", "net.ipv4.ip_forward=1"]


def _outer_network(state: State, holder: int) -> Iterable[list[str]]:
    device = _device(state)
    gateway = f"10.215.{state.addresses.subnet}.2"
    peer = ["peer", "name", "uplink", "netns", str(holder)]
    yield ["ip", "link", "add", device, "type", "veth", *peer]
    yield ["ip", "address", "add", f"10.215.{state.addresses.subnet}.1/30", "dev", device]
    yield ["ip", "link", "set", device, "up"]
    for network in (pods(state), state.addresses.services):
        yield ["ip", "route", "add", network, "via", gateway, "dev", device, "onlink"]


def _inner_uplink(state: State) -> Iterable[list[str]]:
    yield ["ip", "address", "add", f"10.215.{state.addresses.subnet}.2/30", "dev", "uplink"]
    yield ["ip", "link", "set", "uplink", "up"]
    fresh = ["-o", "uplink", "-m", "conntrack", "--ctstate", "NEW", "-j", "DROP"]
    # kube-proxy rewrites the filter table; it does not touch mangle.
    yield ["iptables", "-w", "-t", "mangle", "-A", "FORWARD", *fresh]
    yield ["iptables", "-w", "-t", "mangle", "-A", "OUTPUT", *fresh]


def _device(state: State) -> str:
    return f"specdec{state.addresses.subnet}"


def _routes() -> list[ipaddress.IPv4Network]:
    routes = json.loads(run(["ip", "-4", "-json", "route"]) or "[]")
    destinations = [route["dst"] for route in routes if route["dst"] != "default"]
    return [ipaddress.IPv4Network(destination, strict=False) for destination in destinations]
