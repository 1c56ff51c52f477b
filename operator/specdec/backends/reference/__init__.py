"""The CPU backend, for trying, testing and teaching."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdec.api import names
from specdec.api.model import Backend, Lookahead, Placement, SpeculativeModel, Topology
from specdec.backends import programs
from specdec.backends.building import DTYPES, keyed, limits, mode
from specdec.backends.facts import Checkpoint, Engine, Facts, Images
from specdec.backends.lengths import max_draft_len
from specdec.backends.repositories import repositories
from specdec.triton.layout import Layout, RankPlan, Split, plan
from specdec.triton.repository import RepositoryPlan


@dataclass(frozen=True)
class Reference:
    """GPUs are only taken when ordinals are given, to try their assignment."""

    def default_image(self, images: Images, version: str) -> str:
        """The reference image of the release, which serves every version."""
        del version
        return images.reference

    def scripts(self) -> Mapping[str, str]:
        """The Python files of `payload/build`."""
        return programs.payload("build")

    def ranks(self, model: SpeculativeModel) -> RankPlan:
        """One process on exactly the ordinals of the spec."""
        splits = {
            role: Split(spec.parallelism.tensor, spec.parallelism.pipeline, spec.gpu.device_ids)
            for role, spec in model.models.items()
        }
        block = model.spec.speculation.draft_target
        return plan(
            Layout(
                splits["target"],
                splits.get("draft"),
                topology=block.topology if block else Topology.SINGLE_SERVER,
                placement=block.placement if block else Placement.SHARED,
                fast_logits=block is not None and block.fast_logits,
                one_process=True,
                nodes=model.spec.serving.nodes_per_replica,
            )
        )

    def engine(self, model: SpeculativeModel, checkpoint: Checkpoint, facts: Facts) -> Engine:
        """Key over the build plan, the image and the script; draft length defaults stay out."""
        wanted = self._plan(model, checkpoint, facts.version)
        inputs = {
            "plan": wanted,
            "image": facts.image,
            "scripts": names.digest(dict(self.scripts())),
            "gpuProduct": None,
        }
        return keyed(checkpoint.role, wanted, inputs)

    def repositories(self, model: SpeculativeModel, facts: Facts) -> Mapping[str, RepositoryPlan]:
        """The layout of the wanted version over the engines."""
        return repositories(model, facts, self.ranks(model))

    def _plan(
        self, model: SpeculativeModel, checkpoint: Checkpoint, version: str
    ) -> dict[str, Any]:
        spec = model.models[checkpoint.role]
        target = checkpoint.role == "target"
        speculative = mode(model, checkpoint.role)
        sizes = model.spec.speculation.lookahead or Lookahead()
        lookahead = speculative == "lookahead_decoding"
        return {
            "backend": Backend.REFERENCE.value,
            "role": checkpoint.role,
            "checkpoint": checkpoint.path,
            "dtype": DTYPES[spec.dtype],
            "limits": limits(model, checkpoint.role),
            "maxDraftTokens": max_draft_len(model) if target else 0,
            "speculativeDecodingMode": speculative,
            "lookahead": sizes.model_dump(by_alias=True) if lookahead else None,
            "tensorParallel": spec.parallelism.tensor,
            "pipelineParallel": spec.parallelism.pipeline,
            "version": version,
        }
