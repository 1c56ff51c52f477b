"""Fetch artifacts from Google Cloud Storage.

`sources` calls `open_source`. Without a service account key, requests are anonymous.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from obstore import exceptions
from obstore.store import GCSStore

from specdec.api.reasons import FetchReason
from specdec.jobs import object_store
from specdec.jobs.object_store import Bucket
from specdec.jobs.result import JobError
from specdec.jobs.source_request import SourceRequest


def open_source(request: SourceRequest) -> AbstractContextManager[Bucket]:
    """The prefix that `uri` names, with `endpoint` where given.

    Raises:
        JobError: AuthFailed if the key is not a service account key.
    """
    settings = request.settings
    bucket, prefix = object_store.split(settings["uri"])
    endpoint = settings.get("endpoint", "")
    key = request.secret("GCS_KEY")
    config: dict[str, Any] = {"service_account_key": key} if key else {"skip_signature": True}
    if endpoint:
        config["base_url"] = endpoint
    secret = f"the Secret of the {request.role}'s gcs.credentialsSecretRef"
    try:
        store, index = (
            GCSStore(bucket, **object_store.store_options(endpoint, url), **config)
            for url in (request.proxy.url, request.proxy.limited_url)
        )
    except exceptions.BaseError:
        # The library's message may quote the key, so it is not passed on.
        raise JobError(
            FetchReason.AUTH_FAILED,
            f"{secret} holds no service account key in JSON: put one there",
        ) from None
    return nullcontext(
        Bucket(store, index, settings["uri"], prefix, request.role, secret, request.kind)
    )
