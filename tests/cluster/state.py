"""The options, addresses and users of a cluster."""

import contextlib
import json
import random
import secrets
import socket
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from cluster import folders
from cluster.errors import ClusterError
from cluster.processes import Process

Kind = Literal["control-plane", "node"]


@dataclass(frozen=True)
class User:
    """A user who authenticates to the API server with a token."""

    name: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Options:
    """The options of `up`."""

    kind: Kind = "control-plane"
    kwok: bool = False
    hold_jobs: bool = False
    gpus: int = 8
    gpu_product: str = "NVIDIA-H100-80GB-HBM3"
    nodes: int = 2
    volumes: int = 20
    users: tuple[User, ...] = ()
    # The API server writes the requests of this user to logs/audit.log; empty: no log.
    audited: str = ""
    # The Kubernetes release that the API server emulates, such as 1.31; empty: its own release.
    emulated: str = ""


@dataclass(frozen=True)
class Addresses:
    """The addresses and ports of one cluster.

    subnet is the number of a node's networks, so that several nodes can run side by side. A
    control plane listens on loopback and has no subnet (-1).
    """

    host: str
    api: int
    etcd: int
    etcd_peer: int
    services: str
    subnet: int = -1

    @property
    def server(self) -> str:
        """The API server's address."""
        return f"https://{self.host}:{self.api}"

    @property
    def first_service(self) -> str:
        """The address of the Service `kubernetes`: the first of the Service range."""
        return self.services.split("/")[0].rsplit(".", 1)[0] + ".1"


@dataclass(frozen=True)
class State:
    """The saved state of a cluster. complete: whether `up` has finished."""

    name: str
    options: Options
    addresses: Addresses
    boot: str
    complete: bool = False
    # The cluster is taken down after this process has ended. None: it stays up until `down`.
    owner: Process | None = None

    @property
    def folder(self) -> Path:
        """The folder with all files of this cluster."""
        return folders.cluster(self.name)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    def user(self, name: str) -> Path:
        """Return the path of the kubeconfig of the user called name."""
        return self.folder / "users" / f"{name.replace(':', '.')}.kubeconfig"

    def save(self) -> None:
        """Write state.json atomically."""
        folders.write(self.folder / "state.json", json.dumps(asdict(self), indent=1))


def load(name: str) -> State | None:
    """Return the state of the cluster called name, or None if it does not exist."""
    file = folders.cluster(name) / "state.json"
    try:
        raw: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    users = tuple(User(u["name"], tuple(u["groups"])) for u in raw["options"]["users"])
    options = Options(**{**_known(Options, raw["options"]), "users": users})
    addresses = Addresses(**_known(Addresses, raw["addresses"]))
    owner = Process(**raw["owner"]) if raw.get("owner") else None
    parsed = {"options": options, "addresses": addresses, "owner": owner}
    return State(**{**_known(State, raw), **parsed})


def _known(kind: type[Any], raw: dict[str, Any]) -> dict[str, Any]:
    """Return only the fields of kind: `down` must read files of other versions of the tool."""
    names = {field.name for field in fields(kind)}
    return {key: value for key, value in raw.items() if key in names}


def known() -> Iterator[State]:
    """Yield the state of every cluster on disk."""
    for file in sorted(folders.clusters().glob("*/state.json")):
        with contextlib.suppress(FileNotFoundError):  # `down` is removing the cluster.
            if state := load(file.parent.name):
                yield state


def boot_id() -> str:
    """Return an id that changes with each start of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def loopback_addresses() -> Addresses:
    """Choose free ports for a control plane on loopback."""
    api, etcd, peer = free_ports(3)
    return Addresses("127.0.0.1", api, etcd, peer, "10.96.0.0/20")


def free_ports(count: int) -> list[int]:
    """Choose ports of loopback that are free and that no other cluster has reserved.

    The ports lie below the range that the kernel uses for outgoing connections. From that range,
    the kernel could take a port between this choice and its use.
    """
    taken = {
        port
        for state in known()
        for port in (state.addresses.api, state.addresses.etcd, state.addresses.etcd_peer)
    }
    candidates = [port for port in range(20000, 30000) if port not in taken]
    chosen: list[int] = []
    for port in random.sample(candidates, len(candidates)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            chosen.append(port)
        if len(chosen) == count:
            return chosen
    raise ClusterError("No free port between 20000 and 30000 on 127.0.0.1; stop some clusters.")


# The users of Kubernetes components, with the names that the default roles expect.
PARTS = (
    User("system:kube-controller-manager"),
    User("system:kube-scheduler"),
    User("system:kube-proxy"),
    User("coredns"),
)


def write_identities(state: State) -> None:
    """Write a token for every user: the API server's token file, and a kubeconfig per user."""
    node = User(f"system:node:{state.name}", ("system:nodes",))
    admin = User("admin", ("system:masters",))
    rows = []
    for number, user in enumerate(_distinct((admin, node, *PARTS, *state.options.users))):
        token = secrets.token_urlsafe(32)
        groups = f',"{",".join(user.groups)}"' if user.groups else ""
        rows.append(f"{token},{user.name},{number}{groups}\n")
        text = kubeconfig(state, user.name, token)
        folders.write(state.user(user.name), text, 0o600)
        if user is admin:
            folders.write(state.kubeconfig, text, 0o600)
    folders.write(state.folder / "keys" / "tokens.csv", "".join(rows), 0o600)


def _distinct(users: Iterable[User]) -> list[User]:
    by_name = {user.name: user for user in users}
    return list(by_name.values())


def kubeconfig(state: State, user: str, token: str) -> str:
    """Return a kubeconfig as JSON, which every YAML parser accepts."""
    cluster = {
        "server": state.addresses.server,
        "certificate-authority": str(state.folder / "keys" / "ca.crt"),
    }
    context = {"cluster": state.name, "user": user, "namespace": "default"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": state.name, "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": state.name, "context": context}],
        "current-context": state.name,
    }
    return json.dumps(document, indent=1)
