"""Image archives, and loading them into a node's containerd."""

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from pathlib import Path

from cluster import binaries, folders, images, network
from cluster.errors import ClusterError
from cluster.state import State

CONTAINERD = "/run/containerd/containerd.sock"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def containerd_answers(state: State) -> bool:
    """Return whether the node's containerd answers calls."""
    return _ctr(state, "version").returncode == 0


def snapshotter(state: State) -> str:
    """Return the fastest snapshotter that works in the file system of the cluster's folder.

    Overlays do not stack, and inside a container the folder is often on an overlay already.
    """
    trial = state.folder / "trial"
    parts = [trial / name for name in ("lower", "upper", "work", "merged")]
    for part in parts:
        part.mkdir(parents=True, exist_ok=True)
    lower, upper, work, merged = parts
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    mount = ["mount", "-t", "overlay", "-o", options, "overlay", str(merged)]
    try:
        network.run([*network.enter(state), *mount])
    except ClusterError:
        return "native"
    network.run([*network.enter(state), "umount", str(merged)])
    return "overlayfs"


def load(state: State, archive: Path, tag: str) -> None:
    """Import a docker-archive so that pods can use the image called tag.

    Raises:
        ClusterError: containerd refused the archive, or the archive lacks the image.
    """
    done = _ctr(state, "images", "import", str(archive))
    if done.returncode != 0:
        output = done.stderr.strip().splitlines()[-1:] or ["no output"]
        raise ClusterError(f"The image {tag} could not be loaded: {output[0]}")
    if not loaded(state, tag):
        raise ClusterError(f"{archive} holds no image called {tag}.")


def loaded(state: State, tag: str) -> bool:
    """Return whether the node has an image called tag."""
    return tag in _ctr(state, "images", "ls", "--quiet").stdout.split()


def pause(state: State) -> Path:
    """Write the archive of the pause image, which keeps a pod's namespaces; return its path."""
    program = binaries.path("pause").read_bytes()
    layer = _tar({"pause": (program, 0o755)})
    config = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65534:65534"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created_by": "local cluster"}],
    }
    entry = {"Config": "config.json", "RepoTags": ["localhost/specdec-pause:1"]}
    archive = _tar(
        {
            "config.json": (json.dumps(config).encode(), 0o644),
            "layer.tar": (layer, 0o644),
            "manifest.json": (json.dumps([{**entry, "Layers": ["layer.tar"]}]).encode(), 0o644),
        }
    )
    path = state.folder / "pause.tar"
    path.write_bytes(archive)
    return path


def load_built(state: State, tag: str, image_id: str) -> bool:
    """Load a built image into the node; return False if the node has it already.

    Raises:
        ClusterError: the image could not be exported or imported.
    """
    ledger = state.folder / "images.json"
    there: dict[str, str] = json.loads(ledger.read_text()) if ledger.exists() else {}
    if there.get(tag) == image_id and loaded(state, tag):
        return False
    archive = images.export(tag, state.folder / "image.tar")
    try:
        load(state, archive, tag)
    finally:
        archive.unlink(missing_ok=True)
    folders.write(ledger, json.dumps({**there, tag: image_id}))
    return True


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _ctr(state: State, *args: str) -> subprocess.CompletedProcess[str]:
    argv = [*network.enter(state), "ctr", "--address", CONTAINERD, "--namespace", "k8s.io", *args]
    return subprocess.run(argv, capture_output=True, text=True, check=False)
