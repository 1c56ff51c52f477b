"""The interface of a backend; each backend is a package of `backends` that implements it.

The package has the name of the backend's row in `api/support.yaml`, in lower case, and its
`BACKEND` is an instance. The row has the backend's tables: versions, methods, images, front end.
`rules.yaml` in the package has the rules that the API server evaluates (`definition_rules`).
"""

from collections.abc import Mapping
from typing import Any, Protocol

from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint, Engine, Facts, Images
from specdec.backends.footprint import Footprint
from specdec.backends.methods.definition import MethodDefinition
from specdec.backends.rule import Rule
from specdec.desired.engine import Needs
from specdec.triton.layout import RankPlan


class Backend(Protocol):
    """The interface of a backend."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Rules on specs of this backend that CEL cannot express; `rules.yaml` has the others."""

    def method(self, model: SpeculativeModel) -> MethodDefinition:
        """The definition of the resource's method."""

    def parameters(self, version: str) -> tuple[str, ...]:
        """The names that `spec.runtime.parameters` may have, in alphabetical order."""

    def warnings(self, model: SpeculativeModel) -> tuple[str, ...]:
        """Warnings about a spec that is served nevertheless; each is a part of a sentence."""

    def default_image(self, images: Images, version: str, frontend: str) -> str:
        """The server image of a version for a front end; empty if this release knows none."""

    def ranks(self, model: SpeculativeModel) -> RankPlan:
        """GPUs, ranks and launch of the servers.

        Raises:
            RankError: no server can run this spec.
        """

    def memory(
        self, model: SpeculativeModel, checkpoints: Mapping[str, Checkpoint]
    ) -> Mapping[str, Footprint]:
        """The memory of each model on its GPUs, by role of `ranks`; absent if its size is unknown.

        Called only for a backend on GPUs.
        """

    def sized(
        self, model: SpeculativeModel, checkpoints: Mapping[str, Checkpoint], gpu_mib: int
    ) -> SpeculativeModel:
        """The resource with the limits that the spec leaves to the backend.

        Unchanged if the backend builds engines.

        Args:
            model: the resource.
            checkpoints: by role.
            gpu_mib: memory of each GPU of the target in MiB; 0 if it is not known.
        """

    def engines(self, model: SpeculativeModel, facts: Facts) -> tuple[Engine, ...]:
        """The engines for the checkpoints in `facts`; none if the backend serves checkpoints.

        An engine's key covers everything that changes its bytes. A prebuilt engine is the
        directory that was fetched for it. The publish Job compares each engine with
        `maxDraftTokens` and `speculativeDecodingMode` of its plan.
        """

    def needs(self, model: SpeculativeModel, engine: Engine, facts: Facts) -> Needs:
        """The GPUs and the memory that the build Job of an engine requests."""

    def scripts(self) -> Mapping[str, str]:
        """The program that builds engines: source text by file name."""

    def image(self, version: str) -> Mapping[str, Any] | None:
        """What a server image of a version holds, for the check in a build Job.

        None if the image is one of this release's own, or if the backend runs no build Job.
        """

    def repository(self, model: SpeculativeModel, facts: Facts) -> Mapping[str, str]:
        """The files that the servers read beside checkpoints and engines: path -> text.

        If the service has several servers, the files of each are in a folder of its own.

        Raises:
            ValueError: a value of the spec cannot be written, or cannot be served.
        """
