"""A backend as a strategy: what differs between backends, and nothing else, is in here.

Stages ask the strategy of the resource's backend; none of them asks which backend it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Protocol

from specdec.api import names
from specdec.api.model import Backend, Lookahead, Method, ModelSpec, SpeculativeModel
from specdec.desired.serving import Revision
from specdec.stages.stage import Checkpoint, Engine, Facts, Images
from specdec.triton.ranks import Layout, RankPlan, Server, Split, plan
from specdec.triton.repository import LookaheadPlan, ModelPlan, RepositoryPlan

_DTYPES = {
    "Auto": "auto",
    "Float32": "float32",
    "Float16": "float16",
    "BFloat16": "bfloat16",
}


class Strategy(Protocol):
    """What a stage may ask of a backend."""

    def default_image(self, images: Images) -> str:
        """The release's server image; empty when the release has none."""

    def scripts(self) -> Mapping[str, str]:
        """The engine-build program: source text by file name."""

    def ranks(self, model: SpeculativeModel) -> RankPlan:
        """GPUs and ranks of the serving pods; RankError for a spec that no server fits."""

    def engine(self, model: SpeculativeModel, checkpoint: Checkpoint, facts: Facts) -> Engine:
        """The engine of a checkpoint; its key holds everything that changes the engine's bytes."""

    def repository(self, model: SpeculativeModel, facts: Facts) -> RepositoryPlan:
        """The model repository over the engines in `facts`."""


def strategy(backend: Backend) -> Strategy:
    """The strategy of a backend that this release serves; KeyError for any other."""
    return _STRATEGIES[backend]


def max_draft_len(model: SpeculativeModel) -> int:
    """The draft length (tokens) that the target's engine is built for.

    Lookahead decoding (Fu et al., 2024) verifies G n-grams beside a window of W columns and N - 1
    rows; the longest input of one step beyond the first token follows from W, N and G.
    """
    speculation = model.spec.speculation
    if speculation.method is Method.DRAFT_TARGET:
        return speculation.max_draft_tokens or 0
    if speculation.method is Method.LOOKAHEAD:
        sizes = speculation.lookahead or Lookahead()
        n = sizes.ngram_size
        first = 0 if n == 1 else n - 2
        return first + (sizes.window_size - 1 + sizes.verification_set_size) * (n - 1)
    return 0


@dataclass(frozen=True)
class Reference:
    """The CPU backend: GPUs are only taken when ordinals are given, to try their assignment."""

    def default_image(self, images: Images) -> str:
        """The reference image of the release."""
        return images.reference

    def scripts(self) -> Mapping[str, str]:
        """The Python files of `payload/build`."""
        return payload("build")

    def ranks(self, model: SpeculativeModel) -> RankPlan:
        """One process on exactly the ordinals of the spec."""
        splits = {
            role: Split(spec.parallelism.tensor, spec.parallelism.pipeline, spec.gpu.device_ids)
            for role, spec in model.models.items()
        }
        return plan(Layout(splits["target"], splits.get("draft"), one_process=True))

    def engine(self, model: SpeculativeModel, checkpoint: Checkpoint, facts: Facts) -> Engine:
        """Key over the build plan, the image and the script; draft length defaults stay out."""
        plan = self._plan(model, checkpoint, facts.version)
        inputs = {
            "plan": plan,
            "image": facts.image,
            "scripts": names.digest(dict(self.scripts())),
            "gpuProduct": None,
        }
        key = names.digest(inputs)
        output = f"{names.ENGINES}/{key}"
        return Engine(checkpoint.role, key, {**plan, "key": key, "output": output})

    def repository(self, model: SpeculativeModel, facts: Facts) -> RepositoryPlan:
        """The layout of the wanted version over the engines."""
        speculation = model.spec.speculation
        sizes = speculation.lookahead or Lookahead()
        (server,) = self.ranks(model).servers
        plans = {
            role: _model_plan(spec, facts.engines[role].path, server, role)
            for role, spec in model.models.items()
        }
        drafting = speculation.method is Method.DRAFT_TARGET
        lookahead = LookaheadPlan(sizes.window_size, sizes.ngram_size, sizes.verification_set_size)
        return RepositoryPlan(
            version=facts.version,
            method=speculation.method.value,
            tokenizer_dir=facts.checkpoints["target"].path,
            target=plans["target"],
            draft=plans.get("draft"),
            lookahead=lookahead if speculation.method is Method.LOOKAHEAD else None,
            max_batch_size=min(spec.limits.max_batch_size for spec in model.models.values()),
            decoupled=model.spec.serving.streaming,
            draft_tokens=draft_tokens(model),
            max_draft_tokens=max_draft_len(model) if drafting else 0,
            max_seq_len=model.spec.target.limits.max_seq_len,
            enable_kv_cache_reuse=model.spec.target.kv_cache.reuse,
        )

    def _plan(
        self, model: SpeculativeModel, checkpoint: Checkpoint, version: str
    ) -> dict[str, Any]:
        spec = model.models[checkpoint.role]
        method = model.spec.speculation.method
        target = checkpoint.role == "target"
        mode, lookahead = "none", None
        if target and method is Method.DRAFT_TARGET:
            mode = "draft_tokens_external"
        elif target and method is Method.LOOKAHEAD:
            mode = "lookahead_decoding"
            sizes = model.spec.speculation.lookahead or Lookahead()
            lookahead = sizes.model_dump(by_alias=True)
        limits = spec.limits.model_dump(by_alias=True)
        if method is Method.DRAFT_TARGET:
            # Every round sends the whole sequence so far as the input of a new request.
            limits["maxInputLen"] = limits["maxSeqLen"]
        return {
            "backend": Backend.REFERENCE.value,
            "role": checkpoint.role,
            "checkpoint": checkpoint.path,
            "dtype": _DTYPES[spec.dtype],
            "limits": limits,
            "maxDraftTokens": max_draft_len(model) if target else 0,
            "speculativeDecodingMode": mode,
            "lookahead": lookahead,
            "tensorParallel": spec.parallelism.tensor,
            "pipelineParallel": spec.parallelism.pipeline,
            "version": version,
        }


def draft_tokens(model: SpeculativeModel) -> int:
    """The server's default draft length: the spec's, else as long as the engine allows."""
    speculation = model.spec.speculation
    if speculation.method is not Method.DRAFT_TARGET:
        return 0
    wanted = speculation.draft_tokens
    return (speculation.max_draft_tokens or 0) if wanted is None else wanted


@cache
def payload(folder: str) -> Mapping[str, str]:
    """The Python files of a folder under `payload/`; they ship with the package as they are."""
    files = resources.files("specdec").joinpath("payload", folder).iterdir()
    return {f.name: f.read_text("utf-8") for f in files if f.name.endswith(".py")}


def _model_plan(spec: ModelSpec, engine_dir: str, server: Server, role: str) -> ModelPlan:
    cache_ = spec.kv_cache
    tokens, fraction = cache_.max_tokens, None
    if cache_.memory_percent is not None:
        fraction = f"{cache_.memory_percent / 100:.2f}"
    elif tokens is None:
        # Room for a full batch of full sequences: an explicit budget, so that two models in one
        # server never race for what is free.
        tokens = spec.limits.max_batch_size * spec.limits.max_seq_len
    return ModelPlan(
        engine_dir=engine_dir,
        gpu_device_ids=server.gpu_device_ids[role],
        participant_ids=server.participant_ids.get(role, ()),
        max_tokens_in_paged_kv_cache=tokens,
        kv_cache_fraction=fraction,
    )


def served(model: SpeculativeModel, facts: Facts) -> Revision:
    """What the serving pods shall run."""
    (server,) = strategy(model.spec.runtime.backend).ranks(model).servers
    return Revision(facts.repository, facts.image, server.gpus, server.launch)


_STRATEGIES: dict[Backend, Strategy] = {Backend.REFERENCE: Reference()}
