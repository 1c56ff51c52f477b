"""The image of the operator's own pod, which its Jobs run too.

An installation names the image in one place, the container. So tools that rewrite it there, such
as `images` of kustomize, need not know the operator's variables.
"""

from specdec.cluster import Cluster, ClusterError, Rejected
from specdec.controller.settings import Settings

CONTAINER = "operator"
_ADVICE = "or set SPECDEC_OPERATOR_IMAGE"


async def with_own_image(settings: Settings, cluster: Cluster) -> Settings:
    """The settings with the image of the pod, unless they name one or there is no pod.

    Raises:
        ClusterError: the pod cannot be read, or has no container of the operator.
    """
    if settings.operator_image or not settings.pod_name:
        return settings
    image = await _image(cluster, settings.pod_namespace, settings.pod_name)
    return settings.model_copy(update={"operator_image": image})


async def _image(cluster: Cluster, namespace: str, name: str) -> str:
    try:
        pod = await cluster.get("v1", "Pod", namespace, name)
    except Rejected as error:
        raise ClusterError(f"{error}: allow the operator to get its own pod, {_ADVICE}") from error
    for container in pod["spec"]["containers"] if pod else ():
        if container["name"] == CONTAINER:
            return str(container["image"])
    raise ClusterError(
        f"there is no pod {namespace}/{name} with a container {CONTAINER}: let "
        "SPECDEC_POD_NAMESPACE and SPECDEC_POD_NAME name the operator's pod, "
        f"{_ADVICE}"
    )
