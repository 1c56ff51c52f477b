"""Open the remote source of a role, by the source's name in the plan.

`fetch` calls `remote`. A new source is a module with a function `open_source` and one line in
`_MODULES`.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.download import Remote
from specdec.jobs.egress_proxy import EgressProxy
from specdec.jobs.source_request import SourceRequest

# A module is imported when a plan names its source: most Jobs need only one of the libraries.
_MODULES = {
    "gcs": "specdec.jobs.gcs",
    "huggingFace": "specdec.jobs.hugging_face",
    "ngc": "specdec.jobs.ngc",
    "oci": "specdec.jobs.oci",
    "s3": "specdec.jobs.s3",
}


def remote(
    role: str, kind: ArtifactKind, source: Mapping[str, Any], proxy: EgressProxy
) -> AbstractContextManager[Remote]:
    """Open the source of a role.

    Args:
        role: that the files are for.
        kind: selects the files.
        source: the settings, under the name of the source.
        proxy: all requests of the source go through it.

    Raises:
        JobError: the settings or the secret of the source are invalid.
    """
    ((name, settings),) = source.items()
    module = import_module(_MODULES[name])
    request = SourceRequest(role, kind, settings, proxy)
    opened: AbstractContextManager[Remote] = module.open_source(request)
    return opened
