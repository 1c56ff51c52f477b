"""From a source in the plan, and the secrets in the environment, to what can be fetched."""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from specdec.api import names
from specdec.jobs import hugging_face
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.download import Remote
from specdec.jobs.egress_proxy import EgressProxy


def remote(
    role: str, kind: ArtifactKind, source: Mapping[str, Any], guard: EgressProxy
) -> AbstractContextManager[Remote]:
    """The source of a role behind a network, asked through the guard.

    What a place needs is imported when it is wanted: most Jobs need one of them.

    Raises:
        JobError: the source's name or its secret cannot be read.
    """
    ((place, where),) = source.items()
    if place == "huggingFace":
        return nullcontext(_hub(role, kind, where, guard.url))
    if place == "oci":
        from specdec.jobs import oci

        return oci.artifact(role, kind, where, _secret("OCI_CONFIG", role), guard.url)
    if place == "ngc":
        from specdec.jobs import ngc

        return ngc.version(role, kind, where, _secret("NGC_API_KEY", role), guard.url)
    from specdec.jobs import buckets

    ways = (guard.url, guard.small_url)
    if place == "gcs":
        return nullcontext(buckets.gcs(role, kind, where, _secret("GCS_KEY", role), ways))
    parts = {name: _secret(f"S3_{name.upper()}", role) for name in ("access", "secret", "session")}
    return nullcontext(buckets.s3(role, kind, where, parts, ways))


def _hub(
    role: str, kind: ArtifactKind, source: Mapping[str, Any], proxy: str
) -> hugging_face.Repository:
    return hugging_face.Repository(
        repo=source["repo"],
        revision=source.get("revision", "main"),
        endpoint=source.get("endpoint", ""),
        token=_secret("HF_TOKEN", role),
        role=role,
        proxy=proxy,
        kind=kind,
    )


def _secret(name: str, role: str) -> str:
    return os.environ.get(names.variable(name, role), "").strip()
