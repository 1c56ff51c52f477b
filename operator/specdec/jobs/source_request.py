"""The parameters with which `sources` opens a remote source.

Every source module receives one `SourceRequest` in its function `open_source`.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdec.api import names
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.egress_proxy import EgressProxy


@dataclass(frozen=True)
class SourceRequest:
    """A source of the plan, for one role.

    Attributes:
        role: that the files are for.
        kind: selects the files.
        settings: of the source, as in the spec.
        proxy: all requests of the source go through it.
    """

    role: str
    kind: ArtifactKind
    settings: Mapping[str, Any]
    proxy: EgressProxy

    def secret(self, variable: str) -> str:
        """The value of a secret of the role; empty if it is not set."""
        return os.environ.get(names.variable(variable, self.role), "").strip()
