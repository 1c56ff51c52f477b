"""Fetch artifacts from S3 and S3-compatible stores.

`sources` calls `open_source`. Without an access key, requests are anonymous.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from obstore.store import S3Store

from specdec.jobs import object_store
from specdec.jobs.object_store import Bucket
from specdec.jobs.source_request import SourceRequest


def open_source(request: SourceRequest) -> AbstractContextManager[Bucket]:
    """The prefix that `uri` names, with `endpoint` and `region` where given."""
    settings = request.settings
    bucket, prefix = object_store.split(settings["uri"])
    endpoint = settings.get("endpoint", "")
    config: dict[str, Any] = {"region": settings.get("region", "us-east-1")}
    if endpoint:
        config["endpoint"] = endpoint
    config |= _credentials(request)
    store, index = (
        S3Store(bucket, **object_store.store_options(endpoint, url), **config)
        for url in (request.proxy.url, request.proxy.limited_url)
    )
    secret = f"the Secret of the {request.role}'s s3.credentialsSecretRef"
    return nullcontext(
        Bucket(store, index, settings["uri"], prefix, request.role, secret, request.kind)
    )


def _credentials(request: SourceRequest) -> dict[str, Any]:
    access = request.secret("S3_ACCESS")
    if not access:
        return {"skip_signature": True}
    credentials = {
        "access_key_id": access,
        "secret_access_key": request.secret("S3_SECRET"),
    }
    if session := request.secret("S3_SESSION"):
        credentials["session_token"] = session
    return credentials
