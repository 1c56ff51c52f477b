"""The configurations of the samples, compared with the published layouts."""

import pytest

from specdec.api.matrix import support
from specdec.tools.dry_run.plan import make
from specdec.tools.dry_run.resource import read
from support.golden_cases import SAMPLES
from support.published_layouts import VERSIONS, differences, parse
from support.simulated_cluster import IMAGES


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "sample", [name for name in SAMPLES if not name.startswith(("pytorch-", "vllm-"))]
)
def test_every_release_of_every_sample_has_the_published_layout(sample: str, version: str) -> None:
    plan = make(read(str(SAMPLES[sample]), version), IMAGES)
    if plan.refusal:
        assert (sample, version) in UNSERVED
        return
    configs = [parse(text) for path, text in plan.files.items() if path.endswith(".pbtxt")]
    assert len(configs) >= 5
    assert [item for config in configs for item in differences(config, version)] == []


# Release 0.18.0 has no parameters for Lookahead's three sizes.
UNSERVED = {("tensorrt-lookahead", "0.18.0"), ("reference-lookahead", "0.18.0")}


def test_typed_fields_reach_the_server_configuration() -> None:
    body = read(str(SAMPLES["tensorrt-eagle"]))
    spec = body["spec"]
    spec["runtime"] |= {
        "batchSchedulerPolicy": "MaxUtilization",
        "chunkedContext": True,
        "parameters": {"cancellation_check_period_ms": "50"},
    }
    spec["target"]["kvCache"] = {"maxTokens": 4096, "hostMemoryMiB": 3}
    spec["speculation"]["maxDraftTokens"] = 4
    choices = [[0], [1], [0, 0], [0, 0, 0]]
    spec["speculation"]["eagle"] |= {"choices": choices, "numLayers": 3}
    plan = make(body, IMAGES)
    assert plan.refusal == ""
    config = parse(plan.files["tensorrt_llm/config.pbtxt"])
    parameters = {key: value.string_value for key, value in config.parameters.items()}
    assert parameters["eagle_choices"].replace(" ", "") == "{0},{1},{0,0},{0,0,0}"
    assert parameters["medusa_choices"] == ""
    assert parameters["decoding_mode"] == "eagle"
    assert parameters["batch_scheduler_policy"] == "max_utilization"
    assert parameters["enable_chunked_context"] == "true"
    assert parameters["kv_cache_host_memory_bytes"] == str(3 * 1024 * 1024)
    assert parameters["max_tokens_in_paged_kv_cache"] == "4096"
    assert parameters["cancellation_check_period_ms"] == "50"
    assert differences(config, support("TensorRT").default_version) == []


def test_engine_checks_often_for_cancelled_calls_where_lookups_cancel_them() -> None:
    def period(sample: str, **changes: object) -> str:
        body = read(str(SAMPLES[sample]))
        body["spec"].update(changes)
        config = parse(make(body, IMAGES).files["tensorrt_llm/config.pbtxt"])
        value: str = config.parameters["cancellation_check_period_ms"].string_value
        return value

    assert period("tensorrt-ngram") == "10"
    assert period("tensorrt-ngram", serving={"streaming": False}) == ""
    assert period("tensorrt-baseline") == ""
    runtime = read(str(SAMPLES["tensorrt-ngram"]))["spec"]["runtime"]
    own = {**runtime, "parameters": {"cancellation_check_period_ms": "50"}}
    assert period("tensorrt-ngram", runtime=own) == "50"


def test_modes_and_fast_logits_reach_the_server() -> None:
    def parameters(sample: str, model: str = "tensorrt_llm") -> dict[str, str]:
        files = make(read(str(SAMPLES[f"tensorrt-{sample}"])), IMAGES).files
        config = parse(files[f"{model}/config.pbtxt"])
        return {key: value.string_value for key, value in config.parameters.items()}

    modes = {"medusa": "medusa", "redrafter": "redrafter", "lookahead": "lookahead"}
    for sample, mode in modes.items():
        assert parameters(sample)["decoding_mode"] == mode
    sizes = ("window_size", "ngram_size", "verification_set_size")
    assert [parameters("lookahead")[f"lookahead_{size}"] for size in sizes] == ["7"] * 3
    for model, devices, ranks in (
        ("tensorrt_llm", "0,1,2,3", "2,3,4,5"),
        ("tensorrt_llm_draft", "4", "1"),
    ):
        values = parameters("draft-target-fast-logits", model)
        assert values["speculative_decoding_fast_logits"] == "true"
        assert (values["gpu_device_ids"], values["participant_ids"]) == (devices, ranks)
        plain = parameters("draft-target-dedicated", model)
        assert plain["speculative_decoding_fast_logits"] == "false"
    bls = parameters("draft-target-fast-logits", "tensorrt_llm_bls")
    assert (bls["use_draft_logits"], bls["num_draft_tokens"]) == ("true", "5")
    assert bls["max_draft_tokens"] == "10"
