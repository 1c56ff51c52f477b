"""What the operator asks of a backend; a package of `backends` answers for each.

The package has the name of the backend's row in `api/support.yaml`, in lower case, and its
`BACKEND` is an instance. Tables stay in that row: versions, methods, images, the front end.
"""

from collections.abc import Mapping
from typing import Protocol

from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint, Engine, Facts, Images
from specdec.backends.footprint import Footprint
from specdec.backends.rule import Rule
from specdec.desired.engine import Needs
from specdec.triton.layout import RankPlan
from specdec.triton.repository import RepositoryPlan


class Backend(Protocol):
    """What the operator asks of a backend."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Rules that hold for the specs of this backend alone."""

    def default_image(self, images: Images, version: str) -> str:
        """The server image of a version; empty when the release knows none."""

    def ranks(self, model: SpeculativeModel) -> RankPlan:
        """GPUs, ranks and launch of the servers; RankError for a spec that no server fits."""

    def memory(
        self, model: SpeculativeModel, checkpoints: Mapping[str, Checkpoint]
    ) -> Mapping[str, Footprint]:
        """What each model takes of its GPUs, by role; a model of unknown size is absent.

        Asked only for a backend on GPUs.
        """

    def artifacts(self, model: SpeculativeModel, facts: Facts) -> tuple[Engine, ...]:
        """The engines to build from the checkpoints in `facts`; none where these are served.

        An engine's key holds everything that changes its bytes. A prebuilt engine is the
        directory that was fetched for it. The publish Job verifies an engine against
        `maxDraftTokens` and `speculativeDecodingMode` of its plan.
        """

    def needs(self, model: SpeculativeModel, engine: Engine, facts: Facts) -> Needs:
        """What the build of an engine takes from its node."""

    def scripts(self) -> Mapping[str, str]:
        """The program that builds engines: source text by file name."""

    def repositories(self, model: SpeculativeModel, facts: Facts) -> Mapping[str, RepositoryPlan]:
        """The model repositories over the engines in `facts`, by folder.

        One server for all models has one, whose folder is the empty string.
        """
