"""The generated repository against the layout of each release, read as Triton reads it."""

from dataclasses import replace
from pathlib import Path

import pytest

from specdec.triton import contract, library
from specdec.triton.launch import server_argv
from specdec.triton.repository import (
    PlanError,
    RepositoryPlan,
    libraries,
    render,
)
from unit.triton.repositories import LOOKAHEAD, PLAIN, PLAN, config, digest, models, parameters


@pytest.mark.parametrize(
    ("plan", "expected"),
    [(PLAN, 6), (LOOKAHEAD, 5), (PLAIN, 5)],
    ids=["draft-target", "lookahead", "none"],
)
def test_models_of_a_method(plan: RepositoryPlan, expected: int) -> None:
    files = render(plan)
    assert len(models(files)) == expected
    assert ("tensorrt_llm_draft" in models(files)) == (plan.draft is not None)
    for model in models(files):
        assert config(files, model).name == model
        assert any(path.startswith(f"{model}/1/") for path in files)


@pytest.mark.parametrize(
    ("version", "model", "inputs", "outputs"),
    [
        ("0.18.0", "ensemble", 32, 10),
        ("0.18.0", "preprocessing", 13, 17),
        ("0.18.0", "postprocessing", 2, 1),
        ("0.18.0", "tensorrt_llm", 53, 12),
        ("0.18.0", "tensorrt_llm_draft", 53, 12),
        ("0.18.0", "tensorrt_llm_bls", 39, 10),
        ("0.19.0", "ensemble", 34, 17),
        ("0.19.0", "preprocessing", 13, 20),
        ("0.19.0", "tensorrt_llm", 60, 19),
        ("0.19.0", "tensorrt_llm_bls", 41, 18),
    ],
)
def test_tensors_of_a_release(version: str, model: str, inputs: int, outputs: int) -> None:
    parsed = config(render(replace(PLAN, version=version)), model)
    assert (len(parsed.input), len(parsed.output)) == (inputs, outputs)
    names = [tensor.name for tensor in (*parsed.input, *parsed.output)]
    # context_phase_params is both input and output; no other name may appear twice.
    assert len(names) - len(set(names)) <= 2 if model.startswith("tensorrt_llm") else True


def test_flags_of_tensors() -> None:
    parsed = {tensor.name: tensor for tensor in config(render(PLAN), "tensorrt_llm").input}
    draft_logits = parsed["draft_logits"]
    assert (draft_logits.data_type, list(draft_logits.dims)) == (11, [-1, -1])
    assert draft_logits.optional
    assert draft_logits.allow_ragged_batch
    assert parsed["input_lengths"].HasField("reshape")
    assert not parsed["input_lengths"].optional
    half = config(render(replace(PLAN, logits_datatype="TYPE_FP16")), "tensorrt_llm")
    assert next(t for t in half.input if t.name == "draft_logits").data_type == 10


def test_releases_spell_statistics_differently() -> None:
    older = {t.name for t in config(render(replace(PLAN, version="0.18.0")), "ensemble").input}
    newer = {t.name for t in config(render(PLAN), "ensemble").input}
    assert older - newer == {"return_kv_cache_reuse_stats"}
    assert newer - older == {
        "return_perf_metrics",
        "guided_decoding_guide_type",
        "guided_decoding_guide",
    }


@pytest.mark.parametrize("version", contract.versions())
def test_the_ensemble_wires_every_step(version: str) -> None:
    parsed = config(render(replace(PLAN, version=version)), "ensemble")
    known = {tensor.name for tensor in parsed.input}
    for step in parsed.ensemble_scheduling.step:
        inner = config(render(replace(PLAN, version=version)), step.model_name)
        assert set(step.input_map) <= {tensor.name for tensor in inner.input}
        assert set(step.output_map) <= {tensor.name for tensor in inner.output}
        required = {t.name for t in inner.input if not t.optional}
        assert required <= set(step.input_map)
        assert set(step.input_map.values()) <= known
        known |= set(step.output_map.values())
    assert {tensor.name for tensor in parsed.output} <= known


def test_what_speculation_needs_is_always_there() -> None:
    files = render(PLAN)
    for model in ("tensorrt_llm", "tensorrt_llm_draft"):
        actual = parameters(files, model)
        assert actual["exclude_input_in_output"] == "false"
        assert actual["enable_kv_cache_reuse"] == "true"
        assert config(files, model).model_transaction_policy.decoupled
        assert config(files, model).dynamic_batching.max_queue_delay_microseconds == 0
    assert parameters(files, "tensorrt_llm")["gpu_device_ids"] == "0,1"
    assert parameters(files, "tensorrt_llm_draft")["max_tokens_in_paged_kv_cache"] == "2560"
    bls = parameters(files, "tensorrt_llm_bls")
    assert (bls["num_draft_tokens"], bls["max_draft_tokens"]) == ("4", "8")


@pytest.mark.parametrize(
    ("plan", "version"),
    [
        *((plan, version) for plan in (PLAN, PLAIN) for version in contract.versions()),
        *((LOOKAHEAD, version) for version in contract.versions()[1:]),
    ],
)
@pytest.mark.parametrize("decoupled", [True, False])
def test_every_model_has_a_batcher_and_the_bls_a_bounded_queue(
    plan: RepositoryPlan, version: str, decoupled: bool
) -> None:
    """Without a batcher, Triton corrupts its heap when a thousand requests wait."""
    files = render(replace(plan, version=version, decoupled=decoupled, max_queue_size=77))
    for model in models(files) - {"ensemble"}:
        actual = config(files, model)
        assert actual.HasField("dynamic_batching"), model
        bound = actual.dynamic_batching.default_queue_policy.max_queue_size
        assert bound == (77 if model == "tensorrt_llm_bls" else 0), model
        assert actual.dynamic_batching.max_queue_delay_microseconds == 0, model


def test_lookahead_sizes_reach_the_target() -> None:
    actual = parameters(render(LOOKAHEAD), "tensorrt_llm")
    assert actual["decoding_mode"] == "lookahead"
    names = ("window_size", "ngram_size", "verification_set_size")
    assert [actual[f"lookahead_{name}"] for name in names] == ["5", "4", "3"]


@pytest.mark.parametrize("key", ["tokenizer_dir", "guided_decoding_backend"])
def test_keys_read_without_a_fallback_exist_from_0_19(key: str) -> None:
    assert key in parameters(render(PLAN), "tensorrt_llm")
    assert key not in parameters(render(PLAIN), "tensorrt_llm")


def test_simulation_is_only_there_when_asked_for() -> None:
    assert not any("latency" in text for text in render(PLAN).values())
    assert not any("simulated" in text for text in render(PLAN).values())
    slow = replace(PLAN, draft=replace(PLAN.draft or PLAN.target, step_latency_ms=2.5))
    assert parameters(render(slow), "tensorrt_llm_draft")["draft_step_latency_ms"] == "2.5"
    early = replace(PLAN.target, simulated_load_seconds=30.0, simulated_ready_early=True)
    loading = parameters(render(replace(PLAN, target=early)), "tensorrt_llm")
    assert loading["simulated_load_seconds"] == "30"
    assert loading["simulated_ready_early"] == "true"


def test_equal_plans_give_equal_bytes() -> None:
    files = render(PLAN)
    assert files == render(replace(PLAN))
    assert digest(files) == digest(dict(reversed(files.items())))
    assert digest(render(replace(PLAN, draft_tokens=5))) != digest(files)


def test_the_bls_is_a_backend_of_its_own_and_brings_its_library() -> None:
    files = render(replace(PLAN, library="1" * 64))
    actual = config(files, "tensorrt_llm_bls")
    assert actual.backend == library.BACKEND
    # One instance serves all requests; a second instance would have its own counters.
    assert [group.count for group in actual.instance_group] == [1]
    assert not any(
        path.startswith("tensorrt_llm_bls/1/") for path in files if path.endswith(".py")
    )
    assert "AutoTokenizer" in files["tensorrt_llm_bls/tokenizer_json.py"]
    assert files[f"tensorrt_llm_bls/{library.SOURCE}"] == "1" * 64 + "\n"
    assert libraries(files) == {f"tensorrt_llm_bls/{library.FILE}": "1" * 64}
    assert libraries({f"draft/{path}": text for path, text in files.items()}) == {
        f"draft/tensorrt_llm_bls/{library.FILE}": "1" * 64
    }
    assert libraries(render(PLAN)) == {}


def test_another_library_is_another_repository() -> None:
    assert digest(render(replace(PLAN, library="1" * 64))) != digest(
        render(replace(PLAN, library="2" * 64))
    )


def test_package_without_a_library_or_its_name_gives_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "folder", lambda: tmp_path)
    monkeypatch.setattr(library, "workspace", lambda: tmp_path / "bls")
    library.source_digest.cache_clear()
    with pytest.raises(PlanError, match=r"has no libtriton_specdec\.so: run `make setup`"):
        library.file()
    with pytest.raises(PlanError, match=r"has no libtriton_specdec\.source: install a released"):
        library.source_digest()
    (tmp_path / library.SOURCE).write_text("f00\n")
    assert library.source_digest() == "f00"
    library.source_digest.cache_clear()


def test_checkout_without_a_built_library_has_the_name_of_its_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = library.source_digest()
    monkeypatch.setattr(library, "folder", lambda: tmp_path)
    library.source_digest.cache_clear()
    assert library.source_digest() == named
    library.source_digest.cache_clear()


def test_digest_separates_paths_from_contents() -> None:
    assert digest({"a": "bc"}) != digest({"ab": "c"})


def test_launch_is_an_argument_list() -> None:
    argv = server_argv("/models/a b", http_port=1, exit_timeout_seconds=7)
    assert argv[0] == "tritonserver"
    assert "--model-repository=/models/a b" in argv
    assert "--exit-timeout-secs=7" in argv
    assert all(flag.startswith("--") for flag in argv[1:])
    restricted = [flag for flag in argv if "restricted" in flag]
    assert all("\n" in flag for flag in restricted)
    assert len(restricted) == 2


def test_scope_is_an_input_where_lookups_keep_texts() -> None:
    plan = replace(PLAN, lookup_min_match=2, lookup_memory_megabytes=64)
    with_memory, without = render(plan), render(replace(plan, lookup_memory_megabytes=0))
    bls = "tensorrt_llm_bls"
    assert parameters(with_memory, bls)["lookup_memory_megabytes"] == "64"
    inputs = config(with_memory, bls).input
    assert [tensor.optional for tensor in inputs if tensor.name == "lookup_scope"] == [True]
    assert parameters(without, bls)["lookup_memory_megabytes"] == "0"
    assert "lookup_scope" not in [tensor.name for tensor in config(without, bls).input]
