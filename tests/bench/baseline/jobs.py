"""Ends the simulated Jobs of many resources, with the results that programs would report."""

import copy
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cluster import ControlPlane
from cluster.api import Api
from controlplane.operating import POD_JOB, Object
from controlplane.pipeline import fetch_result
from specdec.api import names
from specdec.tools.dry_run.simulated_cluster import measurement_result

_RESULTS: dict[str, Object] = {
    "fetch": fetch_result(),
    "engine": {
        "engine": {
            "key": "0" * 64,
            "bytes": 1000,
            "seconds": 1.5,
            "maxDraftLen": 8,
            "vocabSize": 1024,
        }
    },
    "publish": {"repository": {"hash": "0" * 64, "files": 20}},
}


@contextmanager
def ending(plane: ControlPlane, namespace: str) -> Iterator[None]:
    """End each running pod of a Job in the namespace at once, until the context ends."""
    stopped = threading.Event()
    thread = threading.Thread(target=_end_all, args=(plane, namespace, stopped))
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _end_all(plane: ControlPlane, namespace: str, stopped: threading.Event) -> None:
    api, ended = Api(plane.kubeconfig), set[str]()
    while not stopped.wait(0.2):
        pods = api.call("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector={POD_JOB}")
        for pod in pods["items"]:
            uid, phase = pod["metadata"]["uid"], pod.get("status", {}).get("phase")
            if phase == "Running" and uid not in ended:
                ended.add(uid)
                name = pod["metadata"]["name"]
                plane.finish(namespace, name, message=json.dumps(_result(pod)))


def _result(pod: Object) -> Object:
    component = pod["metadata"]["labels"][names.COMPONENT]
    job = {"metadata": pod["metadata"], "spec": {"template": {"spec": pod["spec"]}}}
    return measurement_result(job) or copy.deepcopy(_RESULTS[component])
