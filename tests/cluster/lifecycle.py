"""Brings a cluster up and takes it down, whatever state it is in."""

import contextlib
import dataclasses
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from cluster import binaries, control, folders, network, node, objects, prerequisites, processes
from cluster.api import Api
from cluster.errors import ClusterError
from cluster.progress import Report
from cluster.state import Options, State, boot_id, known, load, loopback_addresses

# Every process stops before those it depends on: the API server would wait for a stopped etcd.
_STOP_ORDER = (
    "recycler",
    "registry",
    "kwok",
    "gpuplugin",
    "kubelet",
    "kube-proxy",
    "coredns",
    "kube-scheduler",
    "kube-controller-manager",
    "kube-apiserver",
    "etcd",
    "containerd",
)
_GRACE = 10.0


def up(
    name: str, options: Options, report: Report, *, owner: processes.Process | None = None
) -> State:
    """Bring the cluster called name up, or return its state if it is up already.

    A cluster with an owner is for that process only: `sweep` takes it down after the owner ends.

    Raises:
        ClusterError: the cluster does not come up. Its processes are stopped, its logs stay.
    """
    with _exclusive(name):
        live = load(name)
        if live and running(live):
            if live.options != options:
                raise ClusterError(
                    f"The cluster {name} is up with other options; take it down first."
                )
            report(f"{name} is up already")
            return live
        if options.kind == "node":
            prerequisites.require_node(report)
        binaries.ensure(_programs(options), report)
        _remove(name)
        state = _plan(name, options, owner)
        try:
            _start(state, report)
        except BaseException:
            _stop(state)
            raise
        state = dataclasses.replace(state, complete=True)
        state.save()
    return state


def down(name: str, report: Report) -> bool:
    """Stop and remove the cluster called name; return False if it does not exist."""
    with _exclusive(name):
        if not folders.cluster(name).exists():
            report(f"{name} is not up")
            return False
        _remove(name)
        folders.cluster(name).with_name(f".{name}.lock").unlink(missing_ok=True)
    report(f"{name} is down")
    return True


def sweep(report: Report) -> None:
    """Take down every cluster whose owner has ended, for example because it was killed."""
    for state in list(known()):
        orphan = state.owner is not None and not state.owner.alive
        if orphan or (state.owner is not None and state.boot != boot_id()):
            down(state.name, report)


def running(state: State) -> bool:
    """Return whether the cluster came up since the last boot and all its processes still run."""
    processes_ = processes.recorded(state.folder)
    return (
        state.complete
        and state.boot == boot_id()
        and bool(processes_)
        and all(process.alive for process in processes_.values())
    )


@contextlib.contextmanager
def _exclusive(name: str) -> Iterator[None]:
    with folders.locked(folders.cluster(name).with_name(f".{name}.lock")):
        yield


def _programs(options: Options) -> list[str]:
    names = list(binaries.NODE if options.kind == "node" else binaries.CONTROL_PLANE)
    return [*names, "kwok"] if options.kwok else names


def _plan(name: str, options: Options, owner: processes.Process | None) -> State:
    """Choose and save addresses before anything starts, so that no other cluster takes them."""
    with folders.locked(folders.clusters() / ".addresses.lock"):
        is_node = options.kind == "node"
        addresses = network.addresses() if is_node else loopback_addresses()
        state = State(name, options, addresses, boot_id(), owner=owner)
        folders.cluster(name).mkdir(parents=True)
        state.save()
        if is_node:
            _make_places(state)
    return state


def _start(state: State, report: Report) -> None:
    is_node = state.options.kind == "node"
    if is_node:
        network.start(state)
    report("starting the control plane")
    control.start(state)
    if is_node:
        report("starting the node")
        node.start(state)
        node.prepare_volumes(state)
    if state.options.kwok:
        control.start_kwok(state)
    control.wait_for_defaults(state)
    api = Api(state.kubeconfig)
    for body in objects.volumes(state):
        api.apply(body)
    recycler = [sys.executable, "-m", "cluster.recycler", str(state.folder)]
    path = {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    if is_node:
        network.start_inside(state, "recycler", recycler, path)
    else:
        processes.start("recycler", recycler, state.folder, path)


def _remove(name: str) -> None:
    """Stop the cluster's processes and delete its folder, also after a crash or a reboot."""
    state = load(name)
    if state:
        _stop(state)
        if state.options.kind == "node":
            _remove_places(state)
    folder = folders.cluster(name)
    _unmount_below(folder)
    if folder.exists():
        shutil.rmtree(folder)


def _unmount_below(folder: Path) -> None:
    """Unmount everything that a test mounted into the cluster's folder, such as a full disk."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    places = [line.split()[4] for line in mounts if line.split()[4].startswith(f"{folder}/")]
    for place in reversed(places):
        network.run(["umount", place])


def _make_places(state: State) -> None:
    """Create missing folders that a node mounts its own folders over, and record their paths."""
    ledger = folders.clusters() / ".places"
    made = ledger.read_text().splitlines() if ledger.exists() else []
    for place in network.masked(state):
        if not place.exists():
            made.append(str(place))
            folders.write(ledger, "\n".join(made))
            place.mkdir(parents=True)


def _remove_places(state: State) -> None:
    """Remove the recorded folders when the last node is removed.

    Removing them earlier would break other nodes: it also removes their mounts over the folders.
    """
    ledger = folders.clusters() / ".places"
    with folders.locked(folders.clusters() / ".addresses.lock"):
        others = [
            other for other in known() if other.options.kind == "node" and other.name != state.name
        ]
        if others or not ledger.exists():
            return
        used = processes.mount_points()
        kept = [place for place in ledger.read_text().splitlines() if place in used]
        for place in ledger.read_text().splitlines():
            if place not in used:
                with contextlib.suppress(OSError):  # Another program keeps files there.
                    Path(place).rmdir()
        if kept:  # Nodes of another cache use these folders; the next call tries again.
            folders.write(ledger, "\n".join(kept))
        else:
            ledger.unlink()


def _stop(state: State) -> None:
    # After a restart of the machine, the recorded pids belong to other processes.
    recorded = processes.recorded(state.folder) if state.boot == boot_id() else {}
    for name in _STOP_ORDER:
        if name in recorded:
            processes.stop(recorded[name], _GRACE)
    if state.options.kind == "node":
        network.stop(state, _GRACE)
    for stray in list(processes.strays(state.folder)):
        processes.stop(stray, _GRACE)
    if state.options.kind == "node":
        node.stop(state)
