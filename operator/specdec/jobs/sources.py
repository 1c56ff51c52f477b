"""From a source in the plan, and the secrets in the environment, to what can be fetched."""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from specdec.api import names
from specdec.jobs import hub
from specdec.jobs.kind import Kind
from specdec.jobs.remote import Remote


def remote(role: str, source: Mapping[str, Any]) -> AbstractContextManager[Remote]:
    """The source of a role behind a network.

    What a kind needs is imported when it is wanted: most Jobs need one of them.

    Raises:
        JobError: the source's name or its secret cannot be read.
    """
    ((kind, where),) = source.items()
    if kind == "huggingFace":
        return nullcontext(_hub(role, where))
    if kind == "oci":
        from specdec.jobs import oci

        return oci.artifact(role, where, _secret("OCI_CONFIG", role))
    if kind == "ngc":
        from specdec.jobs import ngc

        return ngc.version(role, where, _secret("NGC_API_KEY", role))
    from specdec.jobs import buckets

    if kind == "gcs":
        return nullcontext(buckets.gcs(role, where, _secret("GCS_KEY", role)))
    parts = {name: _secret(f"S3_{name.upper()}", role) for name in ("access", "secret", "session")}
    return nullcontext(buckets.s3(role, where, parts))


def _hub(role: str, source: Mapping[str, Any]) -> hub.Repository:
    return hub.Repository(
        repo=source["repo"],
        revision=source.get("revision", "main"),
        endpoint=source.get("endpoint", ""),
        token=_secret("HF_TOKEN", role),
        role=role,
        kind=Kind.of(role),
    )


def _secret(name: str, role: str) -> str:
    return os.environ.get(names.variable(name, role), "").strip()
