"""What a stage may ask of a backend."""

from collections.abc import Mapping
from typing import Protocol

from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint, Engine, Facts, Images
from specdec.triton.layout import RankPlan
from specdec.triton.repository import RepositoryPlan


class Strategy(Protocol):
    """What a stage may ask of a backend."""

    def default_image(self, images: Images, version: str) -> str:
        """The server image of a version; empty when the release knows none."""

    def scripts(self) -> Mapping[str, str]:
        """The engine-build program: source text by file name."""

    def ranks(self, model: SpeculativeModel) -> RankPlan:
        """GPUs and ranks of the serving pods; RankError for a spec that no server fits."""

    def engine(self, model: SpeculativeModel, checkpoint: Checkpoint, facts: Facts) -> Engine:
        """The engine of a checkpoint; its key holds everything that changes the engine's bytes.

        `checkpoint` is one of those by role of `SpeculativeModel.models`. A prebuilt engine is
        the directory that was fetched for it.
        """

    def repositories(self, model: SpeculativeModel, facts: Facts) -> Mapping[str, RepositoryPlan]:
        """The model repositories over the engines in `facts`, by folder.

        One server for all models has one, whose folder is the empty string.
        """
