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
    # The user whose requests the API server writes to logs/audit.log; empty: none.
    audited: str = ""
    # The release whose API the server has, such as 1.31; empty: its own.
    emulated: str = ""


@dataclass(frozen=True)
class Addresses:
    """Where one cluster listens.

    subnet numbers a node's networks, so that several fit beside each other; a control plane
    lives on loopback and has none (-1).
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
        """The address of the Service `kubernetes`, the first of the range."""
        return self.services.split("/")[0].rsplit(".", 1)[0] + ".1"


@dataclass(frozen=True)
class State:
    """A cluster on disk. complete: `up` finished."""

    name: str
    options: Options
    addresses: Addresses
    boot: str
    complete: bool = False
    # The process that the cluster ends with. None: it stays until `down`.
    owner: Process | None = None

    @property
    def folder(self) -> Path:
        """Where everything of this cluster lies."""
        return folders.cluster(self.name)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    def user(self, name: str) -> Path:
        """Return the kubeconfig of the user called name, who was named at the start."""
        return self.folder / "users" / f"{name.replace(':', '.')}.kubeconfig"

    def save(self) -> None:
        """Write state.json in one step."""
        folders.write(self.folder / "state.json", json.dumps(asdict(self), indent=1))


def load(name: str) -> State | None:
    """Return the state of the cluster called name, or None when there is none."""
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
    """Keep what kind still has: `down` must understand what another version of the tool wrote."""
    names = {field.name for field in fields(kind)}
    return {key: value for key, value in raw.items() if key in names}


def known() -> Iterator[State]:
    """Yield every cluster on disk."""
    for file in sorted(folders.clusters().glob("*/state.json")):
        with contextlib.suppress(FileNotFoundError):  # It is being taken down right now.
            if state := load(file.parent.name):
                yield state


def boot_id() -> str:
    """Return what differs after each start of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def loopback_addresses() -> Addresses:
    """Choose free ports for a control plane on loopback."""
    api, etcd, peer = free_ports(3)
    return Addresses("127.0.0.1", api, etcd, peer, "10.96.0.0/20")


def free_ports(count: int) -> list[int]:
    """Choose ports of loopback that are free and that no other cluster has reserved.

    They lie below the ports that the kernel gives to outgoing connections, which could otherwise
    take one between this choice and its use.
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


# The components of Kubernetes and their user names in its default roles.
PARTS = (
    User("system:kube-controller-manager"),
    User("system:kube-scheduler"),
    User("system:kube-proxy"),
    User("coredns"),
)


def write_identities(state: State) -> None:
    """Give every user a token: the API server's token file, and a kubeconfig for each."""
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
    """Return a kubeconfig, as JSON, which every YAML reader reads."""
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
