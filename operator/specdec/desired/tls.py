"""TLS of the gRPC endpoint: what a server mounts, and what the operator's own clients do.

The kubelet alone reads the Secrets. The server's container sees certificate and key, the one
beside it the certificate, a Job that asks it the authority's certificate and, where servers want
one, a client's certificate and key.
"""

from dataclasses import dataclass
from typing import Any

from specdec.api.model import SpeculativeModel
from specdec.desired.child import given
from specdec.desired.pod import Container
from specdec.triton import launch

# What the kubelet calls the files of a Secret of type kubernetes.io/tls.
CERTIFICATE, KEY, AUTHORITY = "tls.crt", "tls.key", "ca.crt"
_SERVER, _CLIENTS, _CLIENT = "/specdec/tls", "/specdec/clients", "/specdec/client"
# A volume cannot be seen by others of the node, and the pod's group may read it.
_MODE = 0o440
# The container that says when certificates were renewed, and what it keeps while its pod lives.
WATCHER = "certificate"
_MEMORY = "/tmp/specdec-certificate"  # noqa: S108
# As much at least as at most: a pod whose resources are guaranteed stays one.
_SMALL = {"cpu": "20m", "memory": "64Mi"}


@dataclass(frozen=True)
class Parts:
    """What a container and its pod have on account of TLS."""

    env: tuple[dict[str, Any], ...] = ()
    mounts: tuple[dict[str, Any], ...] = ()
    volumes: tuple[dict[str, Any], ...] = ()


def files(model: SpeculativeModel) -> launch.Tls | None:
    """The files of a server's command line."""
    tls = model.spec.serving.tls
    if tls is None:
        return None
    clients = f"{_CLIENTS}/{AUTHORITY}" if tls.client_ca else None
    return launch.Tls(f"{_SERVER}/{CERTIFICATE}", f"{_SERVER}/{KEY}", clients)


def server(model: SpeculativeModel) -> Parts:
    """The parts of a container that answers on the gRPC port.

    Of a volume whose Secret is missing the kubelet speaks in events alone; of a variable it says
    so in the pod's status. So the volume may be empty, and the variable, which holds the public
    certificate and is not read by anybody, may not.
    """
    tls = model.spec.serving.tls
    if tls is None:
        return Parts()
    reference = {"name": tls.secret_name, "key": CERTIFICATE}
    mounts = [_mount("tls", _SERVER)]
    volumes = [
        _secret("tls", tls.secret_name, CERTIFICATE, KEY),
        _secret(WATCHER, tls.secret_name, CERTIFICATE),
    ]
    if tls.client_ca is not None:
        items = [{"key": tls.client_ca.key, "path": AUTHORITY}]
        mounts.append(_mount("clients", _CLIENTS))
        volumes.append(
            {"name": "clients", "configMap": {"name": tls.client_ca.name, "items": items}}
        )
    return Parts(
        ({"name": "SPECDEC_TLS_CERTIFICATE", "valueFrom": {"secretKeyRef": reference}},),
        tuple(mounts),
        tuple(volumes),
    )


def watchers(model: SpeculativeModel, image: str) -> tuple[Container, ...]:
    """The container beside a server with TLS, of the server's image; it sees nothing secret."""
    tls = model.spec.serving.tls
    if tls is None:
        return ()
    paths, mounts = [f"{_SERVER}/{CERTIFICATE}"], [_mount(WATCHER, _SERVER)]
    if tls.client_ca is not None:
        paths.append(f"{_CLIENTS}/{AUTHORITY}")
        mounts.append(_mount("clients", _CLIENTS))
    return (
        Container(
            name=WATCHER,
            image=image,
            pull_policy=model.spec.runtime.pull_policy,
            command=["python3", "-c", launch.program("renewal.py"), _MEMORY, *paths],
            mounts=mounts,
            resources={"requests": _SMALL, "limits": _SMALL},
        ),
    )


def client(model: SpeculativeModel) -> Parts:
    """The parts of a Job that asks a server; it says itself which file it misses."""
    tls = model.spec.serving.tls
    if tls is None:
        return Parts()
    mounts, volumes = [_mount("tls", _SERVER)], [_secret("tls", tls.secret_name, AUTHORITY)]
    if tls.client_secret_name is not None:
        mounts.append(_mount("client", _CLIENT))
        volumes.append(_secret("client", tls.client_secret_name, CERTIFICATE, KEY))
    return Parts((), tuple(mounts), tuple(volumes))


def plan(model: SpeculativeModel) -> dict[str, Any]:
    """How a Job of ours speaks to the servers, as `jobs.asking` reads it; empty without TLS."""
    tls = model.spec.serving.tls
    if tls is None:
        return {}
    own = tls.client_secret_name
    return {
        "authority": f"{_SERVER}/{AUTHORITY}",
        **given(
            certificate=f"{_CLIENT}/{CERTIFICATE}" if own else None,
            key=f"{_CLIENT}/{KEY}" if own else None,
            clientSecret=own,
        ),
    }


def _mount(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "mountPath": path, "readOnly": True}


def _secret(name: str, secret: str, *keys: str) -> dict[str, Any]:
    items = [{"key": key, "path": key} for key in keys]
    source = {"secretName": secret, "items": items, "defaultMode": _MODE, "optional": True}
    return {"name": name, "secret": source}
