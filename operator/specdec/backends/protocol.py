"""The interface of a backend; each backend is a package of `backends` that implements it.

The package has the name of the backend's row in `api/support.yaml`, in lower case, and its
`BACKEND` is an instance. The row has the backend's tables: versions, methods, images, front end.
`rules.yaml` in the package has the rules that the API server evaluates (`definition_rules`).
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint, Engine, Facts
from specdec.backends.footprint import Footprint
from specdec.backends.methods.definition import MethodDefinition
from specdec.backends.rule import Rule
from specdec.desired.engine import Needs
from specdec.triton.layout import RankPlan

# A part of a sentence for each warning about a spec that is served nevertheless.
Warnings = Callable[[SpeculativeModel], tuple[str, ...]]
# The memory of each model on its GPUs, by role of `servers`; absent if its size is unknown.
Memory = Callable[[SpeculativeModel, Mapping[str, Checkpoint]], Mapping[str, Footprint]]
# The resource with the limits that the spec leaves to the backend. The last argument is the memory
# of each GPU of the target in MiB; 0 if it is not known.
Sized = Callable[[SpeculativeModel, Mapping[str, Checkpoint], int], SpeculativeModel]
# What a server image of a version holds.
ImageCheck = Callable[[str], Mapping[str, Any]]


class EngineBuilder(Protocol):
    """How a backend builds engines from checkpoints."""

    @property
    def scripts(self) -> Mapping[str, str]:
        """The program that builds engines: source text by file name."""

    @property
    def image_check(self) -> ImageCheck | None:
        """What a build Job compares with its image; None if the image is one of this release."""

    def engines(self, model: SpeculativeModel, facts: Facts) -> tuple[Engine, ...]:
        """The engines for the checkpoints in `facts`.

        An engine's key covers everything that changes its bytes. A prebuilt engine is the
        directory that was fetched for it. The publish Job compares each engine with
        `maxDraftTokens` and `speculativeDecodingMode` of its plan.
        """

    def needs(self, model: SpeculativeModel, engine: Engine) -> Needs:
        """The GPUs and the memory that the build Job of an engine requests."""


class Backend(Protocol):
    """The interface of a backend."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Rules on specs of this backend that CEL cannot express; `rules.yaml` has the others."""

    @property
    def warnings(self) -> tuple[Warnings, ...]:
        """Functions that return warnings about a spec."""

    @property
    def memory(self) -> Memory | None:
        """What a spec needs on its GPUs; None if the backend serves from the host's memory."""

    @property
    def sized(self) -> Sized | None:
        """How open limits follow from checkpoints; None if limits are built into engines."""

    @property
    def builder(self) -> EngineBuilder | None:
        """Builds the engines; None if the backend serves checkpoints as they are."""

    def method(self, model: SpeculativeModel) -> MethodDefinition:
        """The definition of the resource's method."""

    def parameters(self, version: str) -> tuple[str, ...]:
        """The names that `spec.runtime.parameters` may have, in alphabetical order."""

    def servers(self, model: SpeculativeModel) -> RankPlan:
        """GPUs, ranks and launch of the servers.

        Raises:
            RankError: no server can run this spec.
        """

    def repository(self, model: SpeculativeModel, facts: Facts) -> Mapping[str, str]:
        """The files that the servers read beside checkpoints and engines: path -> text.

        If the service has several servers, the files of each are in a folder of its own.

        Raises:
            ValueError: a value of the spec cannot be written, or cannot be served.
        """
