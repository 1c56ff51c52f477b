"""Engines that `trtllm-build` makes, served by Triton's `tensorrtllm` backend."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdec.api import names
from specdec.api.matrix import support
from specdec.api.model import (
    Acceptance,
    Backend,
    Lookahead,
    Method,
    ModelSpec,
    Placement,
    SpeculativeModel,
    Topology,
)
from specdec.backends import programs
from specdec.backends.building import DTYPES, keyed, limits, mode
from specdec.backends.facts import Checkpoint, Engine, Facts, Images
from specdec.backends.lengths import max_draft_len
from specdec.backends.repositories import repositories
from specdec.triton.layout import Layout, RankPlan, Split, plan
from specdec.triton.repository import RepositoryPlan


@dataclass(frozen=True)
class TensorRT:
    """Engines are tied to a GPU product and to a server image; both are in their keys."""

    def default_image(self, images: Images, version: str) -> str:
        """The public image that holds the version."""
        del images
        return support(Backend.TENSORRT).images.get(version, "")

    def scripts(self) -> Mapping[str, str]:
        """The Python files of `payload/build`."""
        return programs.payload("build")

    def ranks(self, model: SpeculativeModel) -> RankPlan:
        """Devices and ranks by topology and placement."""
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
                nodes=model.spec.serving.nodes_per_replica,
            )
        )

    def engine(self, model: SpeculativeModel, checkpoint: Checkpoint, facts: Facts) -> Engine:
        """Key over the build plan, the image and the script, or a prebuilt engine's content."""
        role = checkpoint.role
        wanted = self._plan(model, checkpoint, facts)
        if model.models[role].engine.prebuilt is None:
            scripts = names.digest(dict(self.scripts()))
            return keyed(role, wanted, {"plan": wanted, "image": facts.image, "scripts": scripts})
        digest = facts.checkpoints[f"{role}-engine"].digest
        key = names.digest({"prebuilt": digest})
        return Engine(role, key, {**wanted, "key": key}, checkpoint=digest)

    def repositories(self, model: SpeculativeModel, facts: Facts) -> Mapping[str, RepositoryPlan]:
        """The layout of the wanted version over the engines."""
        return repositories(model, facts, self.ranks(model))

    def _plan(
        self, model: SpeculativeModel, checkpoint: Checkpoint, facts: Facts
    ) -> dict[str, Any]:
        """What the build program reads: only what changes the engine's bytes."""
        role = checkpoint.role
        spec, target = model.models[role], role == "target"
        headed = target and model.spec.speculation.heads is not None
        return {
            "backend": Backend.TENSORRT.value,
            "role": role,
            "checkpoint": checkpoint.path,
            "heads": facts.checkpoints["heads"].path if headed else None,
            "version": facts.version,
            "gpuProduct": model.spec.gpu.product,
            "architecture": checkpoint.facts.get("architecture"),
            "dtype": DTYPES[spec.dtype],
            "quantization": spec.quantization.model_dump(by_alias=True),
            "tensorParallel": spec.parallelism.tensor,
            "pipelineParallel": spec.parallelism.pipeline,
            "limits": limits(model, role),
            "maxDraftTokens": max_draft_len(model) if target else 0,
            "speculativeDecodingMode": mode(model, role),
            **_method(model, role),
            "engine": _options(model, spec),
            "examples": support(Backend.TENSORRT).examples[facts.version],
        }


def _options(model: SpeculativeModel, spec: ModelSpec) -> dict[str, Any]:
    block = model.spec.speculation.draft_target
    # In every release: the executor refuses a request for logits of an engine built without.
    gathers = block is not None and block.acceptance is Acceptance.LOGITS
    return {
        **spec.engine.model_dump(by_alias=True, exclude={"prebuilt"}),
        "gatherGenerationLogits": gathers,
    }


def _method(model: SpeculativeModel, role: str) -> dict[str, Any]:
    """The method's sizes that are built in; a tree's choices are told to the server instead."""
    speculation = model.spec.speculation
    wanted: dict[str, Any] = dict.fromkeys(("eagle", "medusa", "reDrafter", "lookahead"))
    if role != "target":
        return wanted
    if speculation.method is Method.EAGLE and speculation.eagle:
        keep = {"num_layers", "max_non_leaves_per_layer"}
        wanted["eagle"] = speculation.eagle.model_dump(by_alias=True, include=keep)
    elif speculation.method is Method.MEDUSA and speculation.medusa:
        keep = {"num_heads", "num_layers"}
        wanted["medusa"] = speculation.medusa.model_dump(by_alias=True, include=keep)
    elif speculation.method is Method.RE_DRAFTER and speculation.re_drafter:
        keep = {"num_beams", "draft_len_per_beam", "greedy_search"}
        wanted["reDrafter"] = speculation.re_drafter.model_dump(by_alias=True, include=keep)
    elif speculation.method is Method.LOOKAHEAD:
        sizes = speculation.lookahead or Lookahead()
        wanted["lookahead"] = sizes.model_dump(by_alias=True)
    return wanted
