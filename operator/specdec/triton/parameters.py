"""Parameter tables of the Triton models: every key a release reads, in a fixed order.

An unset key is written with an empty value: the C++ backend then takes its default and logs it,
and the file lists every parameter.
"""

from specdec.api.versions import at_least
from specdec.triton import options
from specdec.triton.model_names import (
    BLS,
    DRAFT,
    ENSEMBLE,
    POSTPROCESSING,
    PREPROCESSING,
    TARGET,
)
from specdec.triton.plan import ModelPlan, Parameters, PlanError, RepositoryPlan

# Milliseconds between two checks for cancelled calls, where lookups cancel calls. A check loops
# over the calls in flight. Without a value TensorRT-LLM checks every 100 ms.
_CANCELLATION_MS = 10
_WORKER = "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker"


def published(plan: RepositoryPlan) -> dict[str, Parameters]:
    """The parameters of each model that TensorRT-LLM's backend publishes, in their order."""
    return {
        ENSEMBLE: (),
        PREPROCESSING: text_parameters(PREPROCESSING, plan),
        TARGET: engine_parameters(plan.target, plan, is_target=True),
        POSTPROCESSING: text_parameters(POSTPROCESSING, plan),
        BLS: bls_parameters(plan, TARGET, DRAFT),
    }


def text_parameters(model: str, plan: RepositoryPlan) -> Parameters:
    """Parameters of `preprocessing` or `postprocessing`."""
    if model == POSTPROCESSING:
        return (
            ("tokenizer_dir", plan.tokenizer_dir),
            ("skip_special_tokens", _word(plan.skip_special_tokens)),
        )
    multimodal = (
        "multimodal_model_path" if at_least(plan.version, "0.19.0") else "visual_model_path"
    )
    parameters: Parameters = (
        ("tokenizer_dir", plan.tokenizer_dir),
        ("add_special_tokens", _word(plan.add_special_tokens)),
        (multimodal, ""),
        ("gpt_model_path", plan.target.engine_dir),
        ("max_num_images", ""),
        ("max_seq_len", _max_seq_len(plan)),
    )
    if at_least(plan.version, "1.2.0"):
        parameters += (("hf_model_path", ""),)
    return parameters


def engine_parameters(engine: ModelPlan, plan: RepositoryPlan, *, is_target: bool) -> Parameters:
    """Parameters of `tensorrt_llm` (the target) or `tensorrt_llm_draft`.

    The plan's own parameters replace those of the table, or are appended to it.

    Raises:
        PlanError: the release does not read a key that the method or a field of the spec sets.
    """
    table = dict(_engine_parameters(engine, plan, is_target=is_target))
    own = dict(engine.parameters)
    unknown = [name for name in own if name not in (*table, *options.free(plan.version))]
    if unknown:
        raise PlanError(
            f"version is {plan.version}, which does not read {', '.join(unknown)}: choose a newer "
            "version, or leave out what sets it"
        )
    return tuple((table | own | dict(plan.parameters)).items())


def _engine_parameters(engine: ModelPlan, plan: RepositoryPlan, *, is_target: bool) -> Parameters:
    parameters = (
        ("gpt_model_type", "inflight_fused_batching"),
        ("gpt_model_path", engine.engine_dir),
        ("encoder_model_path", ""),
        *_cache_parameters(engine, plan),
        ("batch_scheduler_policy", "guaranteed_no_evict"),
        # The BLS removes as many tokens from each response as it sent as input. If the response
        # had no input, it would remove generated text.
        ("exclude_input_in_output", "false"),
        # By default, TensorRT-LLM normalizes log probabilities within the top k. Each token of a
        # greedy answer then has the probability 1.
        ("normalize_log_probs", "false"),
        ("decoding_mode", ""),
        ("medusa_choices", ""),
        ("eagle_choices", ""),
        ("speculative_decoding_fast_logits", _word(plan.fast_logits)),
        ("gpu_device_ids", _list(engine.gpu_device_ids)),
        ("participant_ids", _list(engine.participant_ids)),
        ("gpu_weights_percent", ""),
        ("executor_worker_path", _WORKER),
        ("FORCE_CPU_ONLY_INPUT_TENSORS", "no"),
        *_tuning_parameters(_cancellation_period(plan, is_target=is_target)),
    )
    if at_least(plan.version, "0.19.0"):
        parameters += (
            ("num_nodes", ""),
            ("lora_prefetch_dir", ""),
            ("lookahead_window_size", ""),
            ("lookahead_ngram_size", ""),
            ("lookahead_verification_set_size", ""),
            # Read without a fallback from 0.19 on: the keys must exist.
            ("tokenizer_dir", plan.tokenizer_dir),
            ("guided_decoding_backend", ""),
            ("xgrammar_tokenizer_info_path", ""),
        )
    if at_least(plan.version, "1.2.0"):
        parameters += (("enable_trt_overlap", ""),)
    if engine.step_latency_ms is not None:
        key = "step_latency_ms" if is_target else "draft_step_latency_ms"
        parameters += ((key, f"{engine.step_latency_ms:g}"),)
    if engine.simulated_load_seconds is not None:
        parameters += (
            ("simulated_load_seconds", f"{engine.simulated_load_seconds:g}"),
            ("simulated_ready_early", _word(engine.simulated_ready_early)),
        )
    return parameters


def bls_parameters(plan: RepositoryPlan, target: str, draft: str) -> Parameters:
    """Parameters of `tensorrt_llm_bls`: four of TensorRT-LLM's layout, then those of our BLS."""
    in_flight = plan.bls_max_in_flight or 2 * plan.max_batch_size
    return (
        ("accumulate_tokens", "false"),
        ("tensorrt_llm_model_name", target),
        ("tensorrt_llm_draft_model_name", draft if plan.draft else ""),
        ("multimodal_encoders_name", ""),
        ("num_draft_tokens", str(plan.draft_tokens if plan.drafts else 0)),
        ("max_draft_tokens", str(plan.max_draft_tokens if plan.drafts else 0)),
        ("draft_length_policy", "Adaptive" if plan.adaptive else "Fixed"),
        ("min_draft_length", str(plan.adaptive.least) if plan.adaptive else ""),
        ("max_draft_length", str(plan.adaptive.most) if plan.adaptive else ""),
        ("lookup_min_match", str(plan.lookup_min_match)),
        ("lookup_memory_megabytes", str(plan.lookup_memory_megabytes)),
        ("draft_ahead", str(plan.draft_ahead if plan.draft else 0)),
        ("max_seq_len", _max_seq_len(plan)),
        ("use_draft_logits", _word(plan.use_draft_logits)),
        ("max_in_flight", str(in_flight)),
        ("rows_per_call", str(plan.rows_per_call)),
        ("synchronize_rounds", plan.synchronize_rounds),
        ("tokenizer_dir", plan.tokenizer_dir),
        ("skip_special_tokens", _word(plan.skip_special_tokens)),
        ("add_special_tokens", _word(plan.add_special_tokens)),
    )


def _cache_parameters(engine: ModelPlan, plan: RepositoryPlan) -> Parameters:
    tokens, host = engine.max_tokens_in_paged_kv_cache, engine.kv_cache_host_memory_bytes
    return (
        ("max_beam_width", "1"),
        ("max_tokens_in_paged_kv_cache", "" if tokens is None else str(tokens)),
        ("kv_cache_free_gpu_mem_fraction", engine.kv_cache_fraction or ""),
        ("kv_cache_host_memory_bytes", "" if host is None else str(host)),
        ("kv_cache_onboard_blocks", ""),
        ("cross_kv_cache_fraction", ""),
        ("max_attention_window_size", ""),
        ("sink_token_length", ""),
        ("enable_kv_cache_reuse", _word(plan.enable_kv_cache_reuse)),
        ("enable_chunked_context", ""),
    )


def _tuning_parameters(cancellation_period: str) -> Parameters:
    keys = (
        "multi_block_mode",
        "enable_context_fmha_fp32_acc",
        "cuda_graph_mode",
        "cuda_graph_cache_size",
        "cancellation_check_period_ms",
        "stats_check_period_ms",
        "iter_stats_max_iterations",
        "request_stats_max_iterations",
        "lora_cache_optimal_adapter_size",
        "lora_cache_max_adapter_size",
        "lora_cache_gpu_memory_fraction",
        "lora_cache_host_memory_bytes",
    )
    values = {"cancellation_check_period_ms": cancellation_period}
    return tuple((key, values.get(key, "")) for key in keys)


def _cancellation_period(plan: RepositoryPlan, *, is_target: bool) -> str:
    # While lookups find no match, one streamed call decodes without drafts. A match cancels this
    # call. Until the engine has noticed, it decodes tokens that are not used.
    cancels_often = is_target and plan.decoupled and plan.lookup_min_match > 0
    return str(_CANCELLATION_MS) if cancels_often else ""


def _max_seq_len(plan: RepositoryPlan) -> str:
    return "" if plan.max_seq_len is None else str(plan.max_seq_len)


def _word(value: bool) -> str:
    return "true" if value else "false"


def _list(values: tuple[int, ...]) -> str:
    return ",".join(str(value) for value in values)
