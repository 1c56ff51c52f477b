"""TLS of the gRPC endpoint: the files of servers, of their sidecar and of the operator's clients.

Only the kubelet reads the Secrets. The server's container mounts the certificate and the key, and
its sidecar the certificate. A measuring Job mounts the authority's certificate and, where servers
require one, a client certificate with its key.
"""

from dataclasses import dataclass
from typing import Any

from specdec.api.model import SpeculativeModel
from specdec.desired import programs
from specdec.desired.child import given
from specdec.desired.pod import NO_TELEMETRY, Container, hidden_gpus
from specdec.triton import launch

# The keys of a Secret of type kubernetes.io/tls, which are also the names of its files.
CERTIFICATE, KEY, AUTHORITY = "tls.crt", "tls.key", "ca.crt"
# Where a container mounts the server's files, the authority of clients, and a client's own files.
_SERVER, _CLIENTS, _CLIENT = "/specdec/tls", "/specdec/clients", "/specdec/client"
# Only the owner and the pod's group may read the files.
_MODE = 0o440
# The sidecar that reports renewed certificates, and its state file, which outlives restarts.
WATCHER = "certificate"
_STATE_FILE = "/tmp/specdec-certificate"  # noqa: S108
# Requests equal limits, so that the sidecar does not take a pod out of the Guaranteed QoS class.
_SMALL = {"cpu": "20m", "memory": "64Mi"}


@dataclass(frozen=True)
class Additions:
    """What TLS adds to a container and its pod."""

    env: tuple[dict[str, Any], ...] = ()
    mounts: tuple[dict[str, Any], ...] = ()
    volumes: tuple[dict[str, Any], ...] = ()


def files(model: SpeculativeModel) -> launch.Tls | None:
    """The paths of certificate files for a server's command line; None without TLS."""
    tls = model.spec.serving.tls
    if tls is None:
        return None
    clients = f"{_CLIENTS}/{AUTHORITY}" if tls.client_ca else None
    return launch.Tls(f"{_SERVER}/{CERTIFICATE}", f"{_SERVER}/{KEY}", clients)


def server(model: SpeculativeModel) -> Additions:
    """What a container that serves the gRPC port needs.

    If a volume's Secret is missing, the kubelet reports that only in events. If the Secret of an
    environment variable is missing, the pod's status has the error. Therefore the volume is
    optional, and a required variable refers to the same Secret. The variable holds the public
    certificate, and no program reads it.
    """
    tls = model.spec.serving.tls
    if tls is None:
        return Additions()
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
    return Additions(
        ({"name": "SPECDEC_TLS_CERTIFICATE", "valueFrom": {"secretKeyRef": reference}},),
        tuple(mounts),
        tuple(volumes),
    )


def watchers(model: SpeculativeModel, image: str) -> tuple[Container, ...]:
    """The sidecar of a server with TLS; it runs the server's image and mounts no private key."""
    tls = model.spec.serving.tls
    if tls is None:
        return ()
    paths = [f"{_SERVER}/{CERTIFICATE}"]
    mounts = [programs.MOUNT, _mount(WATCHER, _SERVER)]
    if tls.client_ca is not None:
        paths.append(f"{_CLIENTS}/{AUTHORITY}")
        mounts.append(_mount("clients", _CLIENTS))
    return (
        Container(
            name=WATCHER,
            image=image,
            pull_policy=model.spec.runtime.pull_policy,
            command=["python3", launch.program_path("renewal.py"), _STATE_FILE, *paths],
            env=[*hidden_gpus({}), *NO_TELEMETRY],
            mounts=mounts,
            resources={"requests": _SMALL, "limits": _SMALL},
        ),
    )


def client(model: SpeculativeModel) -> Additions:
    """What a Job that is a client of a server needs; the Job itself reports missing files."""
    tls = model.spec.serving.tls
    if tls is None:
        return Additions()
    mounts, volumes = [_mount("tls", _SERVER)], [_secret("tls", tls.secret_name, AUTHORITY)]
    if tls.client_secret_name is not None:
        mounts.append(_mount("client", _CLIENT))
        volumes.append(_secret("client", tls.client_secret_name, CERTIFICATE, KEY))
    return Additions((), tuple(mounts), tuple(volumes))


def plan(model: SpeculativeModel) -> dict[str, Any]:
    """The TLS settings of a measuring Job's plan; empty without TLS."""
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
