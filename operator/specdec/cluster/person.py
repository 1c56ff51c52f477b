"""Requests to the API server that only a person makes, with the rights of a kubeconfig.

Commands get a `PersonCluster` from `login.as_person`. The operator never sends these requests.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import aiohttp

from specdec.cluster import Cluster, path

Json = dict[str, Any]
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
# Seconds without data after which a connection ends, because it may be lost without a notice. If
# the container was only silent, its log is then read again.
_SILENT_SECONDS = 120.0


@dataclass(frozen=True)
class Right:
    """A verb on a resource; `resource` may have a subresource, as in `pods/log`."""

    verb: str
    group: str
    resource: str


class PersonCluster(Cluster):
    """One API server, used by a person; methods raise a `ClusterError` as those of `Cluster`."""

    async def version(self) -> Json:
        """The version of the API server: `gitVersion`, `major`, `minor` and others."""
        return await self._request("discover", "/version", "version")

    async def may(self, right: Right, namespace: str) -> bool:
        """Whether this person has a right in a namespace."""
        resource, _, subresource = right.resource.partition("/")
        attributes = {
            "namespace": namespace,
            "verb": right.verb,
            "group": right.group,
            "resource": resource,
            "subresource": subresource,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        review = await self._request("create", _REVIEWS, "SelfSubjectAccessReview", body=body)
        return bool(review["status"]["allowed"])

    async def log_lines(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        follow: bool = False,
        since: str = "",
        lines: int | None = None,
    ) -> AsyncGenerator[str]:
        """The lines of a container's log, each after its time (RFC 3339) and a blank.

        Args:
            follow: wait for more lines until the container ends.
            since: the time of a line; lines of earlier seconds are left out.
            lines: how many of the last lines to read; None for all.

        Raises:
            Transient: the connection was lost; a later call can continue with `since`.
        """
        query = [("container", container), ("timestamps", "true")]
        query += [("follow", "true")] if follow else []
        query += [("sinceTime", since)] if since else []
        query += [("tailLines", str(lines))] if lines is not None else []
        options = {
            "query_params": query,
            "_request_timeout": aiohttp.ClientTimeout(total=None, sock_read=_SILENT_SECONDS),
        }
        url = f"{path('v1', 'Pod', namespace, pod)}/log"
        async with self._open("log", url, f"Pod {pod}", None, **options) as response:
            rest = b""
            async for chunk in response.content.iter_any():
                *complete, rest = (rest + chunk).split(b"\n")
                for line in complete:
                    yield line.decode(errors="replace")
            if rest:
                yield rest.decode(errors="replace")
