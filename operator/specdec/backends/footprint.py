"""The GPU memory that one rank of an engine needs before any cache: weights and working memory.

The numbers are estimates from the sizes of the checkpoint, and rather too high than too low.
docs/memory.md has each formula with its reason.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

# Tokens of a block of the paged cache, the largest of any release.
BLOCK = 64
# Copies of a step's logits: the engine's output, the decoder's in FP32, and the sorted one of
# sampling.
_LOGIT_COPIES = 3
# Steps of generation logits that the runtime holds back before it copies them to the host.
_GATHERED_STEPS = 8
_FP32 = 4
# Buffers of NCCL and of the custom all-reduce of one rank among several.
_COMMUNICATION = 512 << 20


@dataclass(frozen=True)
class Sizes:
    """The sizes that a checkpoint's configuration states.

    Attributes:
        parameters: all of its parameters, experts included.
        tied: one matrix is both embedding and output projection; an engine holds it twice.
        intermediate: width of a feed-forward network, or of one expert.
        experts_per_token: how many experts a token passes, 1 for a dense model.
        cache_width: elements of a token in one layer's cache that every rank holds whole; None
            where the cache holds keys and values of heads.
        routed: parameters of all routed experts; 0 for a dense model.
        value_head_dim: width of the values of a head; None where they are as wide as keys.
        index: bytes of a token in the index of sparse attention, in all layers.
        full_layers: layers that keep all keys and values; None for all layers.
        window_layers: layers that keep those of `window` tokens, with `window_kv_heads` heads of
            `window_head_dim` elements.
        state: elements that the other layers keep of a sequence, of any length.
    """

    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    parameters: int
    tied: bool = False
    experts_per_token: int = 1
    cache_width: int | None = None
    routed: int = 0
    value_head_dim: int | None = None
    index: int = 0
    full_layers: int | None = None
    window_layers: int = 0
    window: int = 0
    window_kv_heads: int = 0
    window_head_dim: int = 0
    state: int = 0

    @property
    def embedding(self) -> int:
        """Parameters of the embedding. The output projection has the same number."""
        return self.vocab * self.hidden

    @property
    def body(self) -> int:
        """Parameters of everything between embedding and output projection."""
        return max(self.parameters - self.embedding * (1 if self.tied else 2), 0)


@dataclass(frozen=True)
class EngineSizes:
    """One engine as it is built and served.

    Attributes:
        bytes_per_body_parameter: bytes of a parameter between embedding and output; 0.5 for
            four bits.
        bytes_per_value: bytes of a value that is never quantized, such as an activation.
        bytes_per_kv_element: bytes of an element of the key/value cache.
        max_seq_len: tokens of a sequence that users see; the engine is built for `draft_len` more.
        draft_len: draft tokens of each sequence that one step verifies.
        head_bytes: bytes of the draft heads in this engine.
        head_layers: layers of draft heads that keep keys and values.
        gathers_logits: whether the logits of every step go to the other model or the client.
        file_bytes: bytes of all rank files of a prebuilt engine, which count as its weights.
        attention_data: attention data parallelism: tensor parallelism divides routed experts
            alone, and each rank has requests and a cache of its own.
    """

    sizes: Sizes
    tensor: int
    pipeline: int
    bytes_per_body_parameter: float
    bytes_per_value: int
    bytes_per_kv_element: int
    max_batch_size: int
    max_seq_len: int
    max_num_tokens: int
    draft_len: int = 0
    head_bytes: int = 0
    head_layers: int = 0
    gathers_logits: bool = False
    file_bytes: int | None = None
    attention_data: bool = False

    @property
    def split(self) -> int:
        """Ranks that share what tensor parallelism divides beside routed experts."""
        return 1 if self.attention_data else self.tensor


@dataclass(frozen=True)
class Footprint:
    """The memory of one rank on its GPU, in bytes, and the sizes of its cache.

    Attributes:
        parts: bytes that are used before any cache, by name.
        kv_per_token: bytes of a token in the cache.
        sequence: tokens of the longest sequence, in whole blocks.
        full_batch: tokens of a full batch of such sequences.
        reuses_blocks: whether a cache uses more than a full batch, for blocks of earlier prompts.
        calibration: bytes that quantizing takes of each GPU of the build; 0 without it.
        build_gpus: GPUs of the build that quantizes.
    """

    parts: dict[str, int]
    kv_per_token: int
    sequence: int
    full_batch: int
    calibration: int = 0
    build_gpus: int = 0
    reuses_blocks: bool = False


@dataclass(frozen=True)
class DraftMemory:
    """What a draft needs on each rank beside its weights.

    Attributes:
        parts: bytes by name, before any cache.
        kv_per_token: bytes of a token in the draft's cache.
    """

    parts: Mapping[str, int] = field(default_factory=dict)
    kv_per_token: int = 0


def footprint(engine: EngineSizes) -> Footprint:
    """The footprint of the largest rank of an engine."""
    sequence = math.ceil((engine.max_seq_len + engine.draft_len) / BLOCK) * BLOCK
    rates = cache_rates(engine)
    parts = {
        "Weights": _weights(engine),
        "Heads": engine.head_bytes,
        "Activations": _activations(engine),
        "Logits": _logits(engine),
        "States": _states(engine, rates) * engine.max_batch_size,
        "Communication": _COMMUNICATION if engine.tensor * engine.pipeline > 1 else 0,
    }
    return Footprint(
        parts={name: size for name, size in parts.items() if size},
        kv_per_token=rates.full + rates.window,
        sequence=sequence,
        full_batch=engine.max_batch_size * sequence,
    )


def _weights(engine: EngineSizes) -> int:
    """The weights of a rank: tensor parallelism splits all of them except the embedding.

    With attention data parallelism it splits routed experts alone.
    """
    ranks = engine.tensor * engine.pipeline
    if engine.file_bytes is not None:
        return math.ceil(engine.file_bytes / ranks)
    body, ends = engine.sizes.body, float(engine.sizes.embedding)
    if engine.pipeline == 1:
        ends += engine.sizes.embedding / engine.split
    if engine.attention_data:
        body += (engine.tensor - 1) * max(body - engine.sizes.routed, 0)
    return math.ceil(
        body * engine.bytes_per_body_parameter / ranks + ends * engine.bytes_per_value
    )


def _activations(engine: EngineSizes) -> int:
    """The live tensors of one layer, for a full step of tokens.

    For each token these are four tensors of the hidden size; queries, keys and values; gate, up
    and their product. TensorRT reuses the memory of tensors that are not live at the same time, so
    the sum is an upper bound.
    """
    sizes = engine.sizes
    attention = (sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim
    inner = 3 * sizes.intermediate * sizes.experts_per_token
    width = 4 * sizes.hidden + math.ceil((attention + inner) / engine.split)
    if engine.attention_data and sizes.routed:
        # The experts of a rank read the tokens of all ranks, and return as many.
        width += 2 * engine.tensor * sizes.hidden
    # `trtllm-build` raises max_num_tokens until one step holds a token and the draft tokens of
    # each of max_batch_size sequences.
    tokens = max(engine.max_num_tokens, engine.max_batch_size * (1 + engine.draft_len))
    return width * tokens * engine.bytes_per_value


def _logits(engine: EngineSizes) -> int:
    """Logits of a step: every sequence of the batch, each with its draft tokens."""
    row = engine.max_batch_size * engine.sizes.vocab * _FP32
    gathered = _GATHERED_STEPS if engine.gathers_logits else 0
    return row * (_LOGIT_COPIES * (1 + engine.draft_len) + gathered)


@dataclass(frozen=True)
class CacheRates:
    """Bytes in the cache of one rank: of a token in layers that keep all, and in windows.

    `state` are the bytes of a sequence that do not depend on its length.
    """

    full: int
    window: int
    state: int


def cache_rates(engine: EngineSizes) -> CacheRates:
    """The closed form of an architecture's cache, for the largest pipeline stage."""
    sizes = engine.sizes
    full = sizes.layers if sizes.full_layers is None else sizes.full_layers
    layers = math.ceil(full / engine.pipeline) + engine.head_layers
    windows = math.ceil(sizes.window_layers / engine.pipeline)
    if sizes.cache_width is not None:
        width = sizes.cache_width * engine.bytes_per_kv_element
    else:
        width = _heads(engine, sizes.kv_heads, sizes.head_dim)
    return CacheRates(
        full=layers * width + math.ceil(sizes.index / engine.pipeline),
        window=windows * _heads(engine, sizes.window_kv_heads, sizes.window_head_dim),
        state=math.ceil(sizes.state * _FP32 / (engine.split * engine.pipeline)),
    )


def _heads(engine: EngineSizes, kv_heads: int, head_dim: int) -> int:
    """Bytes of a token's keys and values in one layer; a rank holds at least one head."""
    both = head_dim + (engine.sizes.value_head_dim or head_dim)
    return math.ceil(kv_heads / engine.split) * both * engine.bytes_per_kv_element


def _states(engine: EngineSizes, rates: CacheRates) -> int:
    """Bytes of a sequence's states: one after each draft token, because drafts may be rejected."""
    return rates.state * (1 + engine.draft_len)
