"""What the fetch Job reports about each source, and what the operator judges it by.

`jobs.inspection` reads the facts from files, and `status.models` keeps them.
"""

from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from specdec.api.result_values import Id, SectionModel, Size, Text
from specdec.api.text import line

# Of a revision: a commit, or what the user's own server calls it.
REVISION_CHARACTERS = 256


class CheckpointFacts(SectionModel):
    """The facts of a checkpoint, heads or a prebuilt engine; None where its files state none.

    The fetch Job writes them and the operator reads them. Facts that an earlier release wrote may
    lack some.

    Sizes are in elements, positions and limits in tokens, hashes in hex digits. `heads` and
    `kv_heads` count attention heads, and `num_heads` counts Medusa heads.

    A model whose layers are of several kinds has `full_layers` that keep all keys and values,
    `window_layers` that keep those of a window (in tokens), with other heads if stated, and
    `state_layers` that keep `state_size` elements of a sequence in all. `unplanned_caches` names
    what keeps the size of the cache unknown. `value_head_dim` is None where values are as wide as
    keys, and `index_bytes` are those of a token in the index of sparse attention.

    A draft whose tokenizer differs from that of its target (`compared_tokenizer`) has the number
    of ids with another token (`token_differences`). Heads may name their target (`verifier`) and
    have the files of another library (`layout`).
    """

    model_config = ConfigDict(populate_by_name=True)

    method: Text | None = None
    architecture: Text | None = None
    vocab_size: Size | None = None
    hidden_size: Size | None = None
    next_token_layers: Size | None = None
    target_hidden_size: Size | None = None
    draft_vocab_size: Size | None = None
    block_size: Size | None = None
    mask_token: Size | None = None
    target_layers: Size | None = None
    captured_layers: Size | None = None
    last_target_layer: Size | None = None
    verifier: Text | None = None
    layout: Text | None = None
    intermediate_size: Size | None = None
    layers: Size | None = None
    heads: Size | None = None
    kv_heads: Size | None = None
    head_dim: Size | None = None
    max_position: Size | None = None
    experts_per_token: Size | None = None
    shared_experts: Size | None = None
    expert_size: Size | None = None
    expert_parameters: Size | None = None
    cache_width: Size | None = None
    value_head_dim: Size | None = None
    index_bytes: Size | None = None
    rotary_dim: Size | None = None
    full_layers: Size | None = None
    window_layers: Size | None = None
    window: Size | None = None
    window_kv_heads: Size | None = None
    window_head_dim: Size | None = None
    state_layers: Size | None = None
    state_size: Size | None = None
    unplanned_caches: Text | None = None
    dtype: Text | None = None
    parameters: Size | None = None
    tie_embeddings: bool | None = None
    quantization: Text | None = None
    quantizes_experts_only: bool | None = None
    tokenizer: Text | None = None
    tokenizer_file: Text | None = None
    sentence_piece: Text | None = None
    compared_tokenizer: Text | None = None
    token_differences: Size | None = None
    first_difference: Text | None = None
    eos: Id | None = None
    # JSON has lists only.
    end_tokens: Annotated[tuple[Id, ...], Field(strict=False)] | None = None
    bos: Id | None = None
    pad: Id | None = None
    chat_template: Text | None = None
    num_heads: Size | None = None
    version: Text | None = None
    tensor_parallel: Size | None = None
    pipeline_parallel: Size | None = None
    max_batch_size: Size | None = None
    max_input_len: Size | None = None
    max_seq_len: Size | None = None
    max_num_tokens: Size | None = None
    max_draft_len: Size | None = None
    speculative_decoding_mode: Text | None = None
    paged_context_fmha: bool | None = None

    def updated(self, other: "CheckpointFacts") -> "CheckpointFacts":
        """These facts, with those that `other` states in their place."""
        return self.model_copy(update={name: fact for name, fact in other if fact is not None})


NO_FACTS = CheckpointFacts()


class Fetched(SectionModel):
    """One source on the volume: sha256 of its files, resolved revision, size in bytes, facts."""

    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    revision: Annotated[str, Field(max_length=REVISION_CHARACTERS), AfterValidator(line)] = ""
    bytes: Size = 0
    facts: CheckpointFacts = NO_FACTS
