"""Python packages that are too old in NVIDIA's images, copied from the operator's image.

An init container copies them into a volume of the pod. The programs of the pod read the versions
in their image, and use the copy only if they need it (`images/build/image_packages.py`).
"""

from typing import Any

from specdec.api.matrix import support
from specdec.api.model import SpeculativeModel
from specdec.api.versions import at_least
from specdec.desired.pod import Container

NAME = "packages"
# Where the operator's image has them (Dockerfile), and where the pod's programs search.
_SOURCE, FOLDER = "/opt/specdec/packages", "/specdec/packages"
# The first release of TensorRT-LLM that needs them.
_SINCE = "1.2.0"
# Requests equal limits, so that the container does not take a pod out of the Guaranteed QoS class.
_SMALL = {"cpu": "20m", "memory": "64Mi"}
_SIZE = "64Mi"
MOUNT = {"name": NAME, "mountPath": FOLDER, "readOnly": True}


def needed(model: SpeculativeModel) -> bool:
    """Whether an image of the resource's release may lack a package that it needs."""
    runtime = model.spec.runtime
    row = support(runtime.backend)
    release = runtime.version or row.default_version
    return row.on_gpus and at_least(release, _SINCE)


def container(model: SpeculativeModel, image: str) -> Container:
    """The init container; `image` is the operator's."""
    return Container(
        name=NAME,
        image=image,
        pull_policy=model.spec.runtime.pull_policy,
        command=["cp", "-R", f"{_SOURCE}/.", FOLDER],
        mounts=[{"name": NAME, "mountPath": FOLDER}],
        resources={"requests": _SMALL, "limits": _SMALL},
    )


def volume() -> dict[str, Any]:
    """The volume of the copy."""
    return {"name": NAME, "emptyDir": {"sizeLimit": _SIZE}}
