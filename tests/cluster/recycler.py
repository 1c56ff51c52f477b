"""Empties the volumes of deleted claims and makes them available again.

Kubernetes does not reuse a released volume unless a provisioner owns it. `up` starts this program
as `python -m cluster.recycler FOLDER`; it ends with the cluster.
"""

import shutil
import sys
import time
from http.client import HTTPException
from pathlib import Path

from cluster.api import JSON_PATCH, Api, Object
from cluster.errors import ClusterError, RefusedError

_PATH = "/api/v1/persistentvolumes"
_SELECTOR = "labelSelector=app.kubernetes.io%2Fmanaged-by%3Dlocal-cluster"


def main(folder: Path) -> None:
    """Watch the volumes until the cluster is removed."""
    api = Api(folder / "kubeconfig")
    while folder.exists():
        try:
            listed = api.call("GET", f"{_PATH}?{_SELECTOR}")
            for volume in listed["items"]:
                recycle(api, volume, folder)
            version = listed["metadata"]["resourceVersion"]
            watch = f"{_PATH}?{_SELECTOR}&watch=true&timeoutSeconds=300&resourceVersion={version}"
            for event in api.stream(watch):
                if event["type"] == "ERROR":
                    break
                recycle(api, event["object"], folder)
        except (ClusterError, OSError, HTTPException, ValueError) as error:
            print(f"trying again: {error}", flush=True)
            time.sleep(1)


def recycle(api: Api, volume: Object, folder: Path) -> bool:
    """Empty a released volume and make it available; return False if it is not released."""
    name = volume["metadata"]["name"]
    path = f"{_PATH}/{name}"
    if not _released(volume):
        return False
    # The event may be old and the volume bound again. A released volume stays so until the patch.
    volume = api.call("GET", path)
    if not _released(volume):
        return False
    # The path in the object is not safe: a user who writes objects could empty other folders.
    empty(folder / "volumes" / name)
    same = {
        "op": "test",
        "path": "/metadata/resourceVersion",
        "value": volume["metadata"]["resourceVersion"],
    }
    try:
        api.call("PATCH", path, [same, {"op": "remove", "path": "/spec/claimRef"}], JSON_PATCH)
    except RefusedError as error:
        if error.code in (404, 409, 422):
            return False  # The volume has changed; the watch reports that as another event.
        raise
    print(f"offering {name} again", flush=True)
    return True


def _released(volume: Object) -> bool:
    return bool(volume.get("status", {}).get("phase") == "Released")


def empty(folder: Path) -> None:
    """Delete the contents of folder, if it exists, but not the folder itself."""
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
