"""A registry of images and charts inside a node, from which its pods pull released images.

The program crane serves it. The node's containerd requests every image of `ghcr.io` from it,
because programs inside a node have no route to the real `ghcr.io`.
"""

import urllib.request

from cluster import binaries, control, network, processes
from cluster.buildah import buildah
from cluster.errors import ClusterError
from cluster.progress import Report
from cluster.state import State

NAME = "registry"
PROGRAM = "crane"
MIRRORED = "ghcr.io"
_PORT = 5000


def address(state: State) -> str:
    """Return the host and port of the registry, which serves HTTP without TLS."""
    return f"{state.addresses.host}:{_PORT}"


def start(state: State, report: Report) -> None:
    """Start the registry and wait until it answers; do nothing if it runs already.

    Raises:
        ClusterError: the registry did not start; carries the reason.
    """
    running = processes.recorded(state.folder).get(NAME)
    if running is not None and running.alive:
        return
    binaries.ensure([PROGRAM], report)
    folder = state.folder / NAME
    folder.mkdir(exist_ok=True)
    serve = ("registry", "serve", f"--address={address(state)}", f"--disk={folder}")
    network.start_inside(state, NAME, [str(binaries.path(PROGRAM)), *serve])
    control.wait(state, lambda: _answers(state), "The registry did not answer")


def push(state: State, tag: str) -> str:
    """Push a built image of the mirrored registry; return its name in the node's registry.

    Raises:
        ClusterError: the tag belongs to another registry, or the push failed.
    """
    host, _, name = tag.partition("/")
    if host != MIRRORED:
        raise ClusterError(f"The node's registry has images of {MIRRORED} and not {tag}.")
    there = f"{address(state)}/{name}"
    # Compression would take longer than all other steps, and pods pull over a local link.
    done = buildah(
        "push", "--quiet", "--disable-compression", "--tls-verify=false", tag, f"docker://{there}"
    )
    if done.returncode != 0:
        raise ClusterError(f"The image {tag} could not be pushed: {done.stderr.strip()}")
    return there


def hosts(state: State) -> str:
    """Return containerd's `hosts.toml` for the mirrored registry."""
    return f"""server = "http://{address(state)}"
[host."http://{address(state)}"]
capabilities = ["pull", "resolve"]
"""


def _answers(state: State) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address(state)}/v2/", timeout=5):
            return True
    except OSError:
        return False
