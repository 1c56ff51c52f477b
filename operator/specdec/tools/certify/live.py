"""The requests of a run to the cluster, with the rights of the caller's kubeconfig.

`run` uses a `Live`. Its methods create resources, one claim and one Job per resource, all with the
label of the run. They delete only objects with this label, and read no Secret.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from specdec.api import names
from specdec.api.model import API_VERSION, KIND
from specdec.client.errors import BadRequestError, RefusedError
from specdec.cluster import Cluster, Conflict, Rejected
from specdec.tools.certify import resources
from specdec.tools.inspect import job_run, session

Json = dict[str, Any]
# Seconds between two reads of a resource or a Job.
INTERVAL = 2.0
# Components of Jobs that run the operator's own image.
_OWN_IMAGE = ("publish", "fetch")


class Live:
    """The cluster of one run.

    Args:
        cluster: logged in as the caller.
        namespace: of everything that the run creates.

    Attributes:
        interval: seconds between two reads.
    """

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.interval = INTERVAL

    async def nodes(self) -> list[Json] | None:
        """All nodes; None if the caller may not list them."""
        try:
            return await self.cluster.list("v1", "Node", None)
        except Rejected:
            return None

    async def require_kind(self) -> None:
        """Raise BadRequestError if the cluster lacks the kind SpeculativeModel."""
        await session.resources(self.cluster, self.namespace)

    async def require_claims(self, claims: set[str]) -> None:
        """Raise BadRequestError if one of the claims is missing."""
        for name in sorted(claims):
            if await self._get("v1", "PersistentVolumeClaim", name) is None:
                hint = "create it"
                if name == "reference-pair":
                    hint = "run kubectl apply -f manifests/samples/reference-pair.yaml"
                raise BadRequestError(
                    f"claim {name} is missing in namespace {self.namespace}: {hint}"
                )

    async def resource(self, entry: str) -> Json | None:
        """The resource of an entry; None if it does not exist."""
        return await self._get(API_VERSION, KIND, resources.resource_name(entry))

    async def apply(self, body: Mapping[str, Any]) -> Json:
        """Create or change an object of the run.

        Raises:
            BadRequestError: an object of the name exists, and the run did not create it.
            Rejected: the API server rejects the object.
        """
        live = await self._get(body["apiVersion"], body["kind"], body["metadata"]["name"])
        run = body["metadata"]["labels"][resources.RUN]
        owner = (live or body)["metadata"].get("labels", {}).get(resources.RUN)
        if owner != run:
            by = f"run {owner} of specdec certify" if owner else "somebody else"
            raise BadRequestError(
                f"{body['kind']} {body['metadata']['name']} in namespace {self.namespace} was "
                f"created by {by}: delete it, or select another --namespace"
            )
        return await self.cluster.apply(body, resources.MANAGER)

    async def remove(self, kind: tuple[str, str], name: str, run: str, seconds: float) -> bool:
        """Delete an object of the run, and wait until it and its pods do not exist any more.

        Returns:
            False if they still exist after `seconds`.
        """
        waited = 0.0
        while True:
            live = await self._get(*kind, name)
            if live is None and not await self._has_pods(kind, name):
                return True
            if live is not None and live["metadata"].get("labels", {}).get(resources.RUN) != run:
                return True
            if waited >= seconds:
                return False
            if live is not None and not live["metadata"].get("deletionTimestamp"):
                try:
                    await self.cluster.delete(live)
                except Conflict:
                    # Its status has changed since it was read.
                    continue
            await asyncio.sleep(self.interval)
            waited += self.interval

    async def operator_image(self, name: str) -> str:
        """The operator's image, by the Jobs of a resource that run it.

        Raises:
            RefusedError: no such Job exists any more, or the caller may not list Jobs.
        """
        try:
            jobs = await self.cluster.list(
                "batch/v1", "Job", self.namespace, f"{names.MODEL}={name}"
            )
        except Rejected as error:
            raise RefusedError(str(error)) from error
        for job in jobs:
            if job["metadata"]["labels"].get(names.COMPONENT) in _OWN_IMAGE:
                return str(job["spec"]["template"]["spec"]["containers"][0]["image"])
        raise RefusedError(f"no Job of {name} shows the operator's image, so no load was run")

    async def job_result(self, body: Mapping[str, Any]) -> Json:
        """Create a Job, unless it exists, and wait for its result.

        Raises:
            RefusedError: the API server rejects the Job, or the Job failed with this message.
        """
        try:
            return job_run.result(await job_run.run(self.cluster, body, self.interval))
        except Rejected as error:
            raise RefusedError(str(error)) from error

    async def _has_pods(self, kind: tuple[str, str], name: str) -> bool:
        if kind != (API_VERSION, KIND):
            return False
        try:
            pods = await self.cluster.list("v1", "Pod", self.namespace, f"{names.MODEL}={name}")
        except Rejected:
            return False
        return bool(pods)

    async def _get(self, api_version: str, kind: str, name: str) -> Json | None:
        return await self.cluster.get(api_version, kind, self.namespace, name)
