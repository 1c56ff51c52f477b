"""The input of a model repository, checked before a single file is rendered."""

from dataclasses import dataclass
from typing import Literal

from specdec.api.defaults import MAX_QUEUE_SIZE
from specdec.triton import contract, options

LogitsType = Literal["TYPE_FP32", "TYPE_FP16", "TYPE_BF16"]
Synchronization = Literal["Measured", "Always", "Never"]
# Keys of a `config.pbtxt` and their values, in the order in which they are written.
Parameters = tuple[tuple[str, str], ...]


class PlanError(ValueError):
    """A plan that no repository can express. The text is a sentence with field, value and fix."""


@dataclass(frozen=True)
class ModelPlan:
    """One engine and where it runs.

    Attributes:
        engine_dir: the engine's directory as the serving pod sees it.
        gpu_device_ids: ordinals inside the pod, one per rank; empty leaves them to the backend.
        participant_ids: MPI ranks, only for a pre-spawned orchestrator.
        max_tokens_in_paged_kv_cache: KV budget in tokens, or None.
        kv_cache_fraction: KV budget as a fraction of free GPU memory ("0.40"), or None.
        kv_cache_host_memory_bytes: host memory for blocks that are moved there, or None.
        parameters: keys that the method and fields of the spec set; the release must read them.
        step_latency_ms: for simulations: added time of a step on the Reference backend, in ms.
        simulated_load_seconds: for simulations: how long a rank of the Reference backend, which is
            a process of its own, loads its engine.
        simulated_ready_early: for simulations: the model is ready before that rank has loaded, as
            with a pre-spawned orchestrator.
    """

    engine_dir: str
    gpu_device_ids: tuple[int, ...] = ()
    participant_ids: tuple[int, ...] = ()
    max_tokens_in_paged_kv_cache: int | None = None
    kv_cache_fraction: str | None = None
    kv_cache_host_memory_bytes: int | None = None
    parameters: Parameters = ()
    step_latency_ms: float | None = None
    simulated_load_seconds: float | None = None
    simulated_ready_early: bool = False


@dataclass(frozen=True)
class DraftLengths:
    """Bounds of adaptive draft lengths, in tokens; with `least` 0 the server may stop drafting."""

    least: int
    most: int


@dataclass(frozen=True)
class RepositoryPlan:
    """Everything the repository depends on; two equal plans give the same bytes.

    Attributes:
        version: TensorRT-LLM release whose layout is written, one of `contract.versions()`.
        max_batch_size: one value for all models, at most the engines' own.
        decoupled: whether engines and BLS stream their responses (`serving.streaming`).
        tokenizer_dir: a Hugging Face directory with `tokenizer.json` or `tokenizer.model`.
        draft_tokens: the server's default draft length; with 0, only requests that set a length
            speculate.
        max_draft_tokens: the largest draft length that a request may set, at most that of the
            target's engine.
        adaptive: bounds within which the BLS chooses the draft length; None for a fixed length.
        lookup_min_match: minimum tokens of a match in prompt and answer. The BLS proposes the
            continuation of a match. 0 disables these lookups.
        lookup_memory_megabytes: maximum memory, in MiB, for the texts that lookups search across
            requests; 0 keeps no texts.
        draft_ahead: drafting is pipelined while at most this many prompts are in flight: the
            draft model continues while the target verifies.
        max_seq_len: the target engine's limit of prompt and answer together, None if unknown.
        use_draft_logits: the server's default for acceptance by logits.
        fast_logits: the draft's logits go to the target from GPU to GPU.
        parameters: further parameters of the engines' models; `options.free` lists their names.
        bls_max_in_flight: sequences that the BLS processes at the same time; others wait. None
            means 2 x max_batch_size.
        rows_per_call: sequences whose rounds may share one call of an engine.
        synchronize_rounds: whether rounds of several sequences wait for each other: always, never,
            or (Measured) if measurements show that this makes rounds faster.
        engine_queue_delay_us: microseconds that a call of an engine waits for later calls, so that
            one step begins all of them.
        max_queue_size: requests that may wait for the BLS; further ones are refused at once.
        library: digest of the sources of the BLS's library, from `library.source_digest()`; empty
            if no publish Job copies the library.
        request_fields: names of request fields in the server's image; None means the release's.
    """

    version: str
    tokenizer_dir: str
    target: ModelPlan
    draft: ModelPlan | None = None
    max_batch_size: int = 8
    decoupled: bool = True
    draft_tokens: int = 0
    max_draft_tokens: int = 0
    adaptive: DraftLengths | None = None
    lookup_min_match: int = 0
    lookup_memory_megabytes: int = 0
    draft_ahead: int = 0
    max_seq_len: int | None = None
    use_draft_logits: bool = False
    fast_logits: bool = False
    logits_datatype: LogitsType = "TYPE_FP32"
    enable_kv_cache_reuse: bool = True
    parameters: Parameters = ()
    bls_max_in_flight: int | None = None
    preprocessing_instances: int = 1
    postprocessing_instances: int = 1
    rows_per_call: int = 1
    synchronize_rounds: Synchronization = "Measured"
    max_queue_size: int = MAX_QUEUE_SIZE
    engine_queue_delay_us: int = 0
    skip_special_tokens: bool = True
    add_special_tokens: bool = True
    library: str = ""
    request_fields: contract.RequestFields | None = None

    @property
    def drafts(self) -> bool:
        """Whether the BLS has draft tokens to propose."""
        return self.draft is not None or self.lookup_min_match > 0

    def __post_init__(self) -> None:
        """Check the values of the plan, and their combinations.

        Raises:
            PlanError: a value or a combination of values that cannot be served.
        """
        if self.version not in contract.versions():
            raise PlanError(
                f"version is {self.version!r}, but the repository layout is known for "
                f"{', '.join(contract.versions())}: choose one of them"
            )
        for name, least in (
            ("max_batch_size", 1),
            ("draft_tokens", 0),
            ("max_draft_tokens", 0),
            ("preprocessing_instances", 1),
            ("postprocessing_instances", 1),
            ("rows_per_call", 1),
            ("max_queue_size", 1),
            ("engine_queue_delay_us", 0),
        ):
            if getattr(self, name) < least:
                raise PlanError(f"{name} is {getattr(self, name)}: set it to {least} or more")
        unknown = options.unknown((name for name, _ in self.parameters), self.version)
        if unknown:
            raise PlanError(
                f"runtime.parameters has {', '.join(unknown)}, which release {self.version} does "
                f"not read or another field sets: use {', '.join(options.free(self.version))}"
            )
        self._check_lengths()
        self._check_logits()

    def _check_lengths(self) -> None:
        if self.draft_tokens and not self.drafts:
            raise PlanError(
                f"draft_tokens is {self.draft_tokens} without draft and lookup_min_match: set one "
                "of them, or draft_tokens to 0"
            )
        if self.draft_tokens > self.max_draft_tokens:
            raise PlanError(
                f"draft_tokens is {self.draft_tokens}, above max_draft_tokens "
                f"{self.max_draft_tokens}: lower the first or build with more"
            )
        if (
            self.adaptive
            and not self.adaptive.least <= self.adaptive.most <= self.max_draft_tokens
        ):
            raise PlanError(
                f"adaptive draft lengths are {self.adaptive.least} to {self.adaptive.most}, but "
                f"max_draft_tokens is {self.max_draft_tokens}: lower them or build with more"
            )

    def _check_logits(self) -> None:
        """Check what fast logits need: otherwise the server disables them with only a log line."""
        if not self.fast_logits:
            return
        engines = (self.target, self.draft)
        ranked = all(engine is not None and engine.participant_ids for engine in engines)
        if not (ranked and self.use_draft_logits and self.logits_datatype == "TYPE_FP32"):
            raise PlanError(
                "fast_logits is set: it needs draft and target with participant_ids, "
                "use_draft_logits, and TYPE_FP32 logits"
            )
